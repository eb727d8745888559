/* SPDX-License-Identifier: Apache-2.0 */
/* probe_nvml.c: NVML's lists of processes inside a container. */
#define _GNU_SOURCE
#include "probe.h"

#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef nvmlReturn_t (*list_v2)(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *);
typedef nvmlReturn_t (*list_v1)(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v1_t *);

static void *nvml_function(const char *name)
{
	static void *h;
	if (!h)
		NEED((h = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)));
	void *f = dlsym(h, name);
	NEED(f);
	return f;
}

static nvmlDevice_t nvml_device(const char *uuid)
{
	nvmlDevice_t device;
	NEED(((nvmlReturn_t(*)(void))nvml_function("nvmlInit_v2"))() == NVML_SUCCESS);
	NEED(((nvmlReturn_t(*)(const char *, nvmlDevice_t *))nvml_function("nvmlDeviceGetHandleByUUID"))(uuid, &device) == NVML_SUCCESS);
	return device;
}

/* A child with `mib` MiB on device 0 that lives until it is killed. */
static pid_t holder(int mib)
{
	int ready[2];
	char c;
	NEED(!pipe(ready));
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		use_device(0);
		NEED(take((uint64_t)mib * MIB) == CUDA_SUCCESS);
		NEED(write(ready[1], "x", 1) == 1);
		for (;;)
			pause();
	}
	NEED(read(ready[0], &c, 1) == 1);
	close(ready[0]), close(ready[1]);
	return pid;
}

static unsigned long long bytes_of(const nvmlProcessInfo_v2_t *list, unsigned n, pid_t pid)
{
	for (unsigned i = 0; i < n; i++)
		if ((pid_t)list[i].pid == pid)
			return list[i].usedGpuMemory;
	return 0;
}

/* A process of another container, without this library: it has 4 MiB, and works. */
static pid_t stranger(void)
{
	int ready[2];
	char c;
	NEED(!pipe(ready));
	pid_t pid = fork();
	if (pid == 0) {
		char client[256];
		snprintf(client, sizeof client, "%s/cudaclient", getenv("VGPU_TEST_FAKE"));
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		unsetenv("LD_PRELOAD");
		/* nor with it in the driver's place */
		setenv("LD_LIBRARY_PATH", getenv("VGPU_TEST_FAKE"), 1);
		NEED(dup2(ready[1], 1) == 1);
		execl(client, client, "alloc", "4", "launch", "1", "forever", (char *)NULL);
		_exit(127);
	}
	NEED(read(ready[0], &c, 1) == 1);
	return pid;
}

void probe_process_lists(void)
{
	nvmlProcessInfo_v2_t list[8];
	nvmlProcessInfo_v1_t old[8];
	nvmlMemory_t memory;
	unsigned n = 0;
	pid_t a = holder(10), b = holder(20), other = stranger();
	list_v2 v3 = (list_v2)nvml_function("nvmlDeviceGetComputeRunningProcesses_v3");
	list_v2 v2 = (list_v2)nvml_function("nvmlDeviceGetComputeRunningProcesses_v2");
	list_v1 v1 = (list_v1)nvml_function("nvmlDeviceGetComputeRunningProcesses");
	nvmlDevice_t device = nvml_device("GPU-00000000-0000-0000-0000-000000000001");

	NEED(v3(device, &n, NULL) == NVML_ERROR_INSUFFICIENT_SIZE && n == 2);
	n = 1;
	NEED(v3(device, &n, list) == NVML_ERROR_INSUFFICIENT_SIZE && n == 2);
	NEED(v3(device, NULL, list) == NVML_ERROR_INVALID_ARGUMENT);
	NEED(v3(device, &n, NULL) == NVML_ERROR_INVALID_ARGUMENT);
	n = 8;
	NEED(v3(device, &n, list) == NVML_SUCCESS && n == 2);
	NEED(bytes_of(list, n, a) == 10 * MIB && bytes_of(list, n, b) == 20 * MIB);
	NEED(list[0].gpuInstanceId == 0xffffffffu && list[0].computeInstanceId == 0xffffffffu);
	n = 8;
	NEED(v2(device, &n, list) == NVML_SUCCESS && n == 2 && bytes_of(list, n, b) == 20 * MIB);
	n = 8;
	NEED(v1(device, &n, old) == NVML_SUCCESS && n == 2 && old[0].usedGpuMemory + old[1].usedGpuMemory == 30 * MIB);
	NEED(((nvmlReturn_t(*)(nvmlDevice_t, nvmlMemory_t *))nvml_function("nvmlDeviceGetMemoryInfo"))(device, &memory) == NVML_SUCCESS);
	NEED(memory.used == 30 * MIB); /* the lists add up to what is said to be used */
	n = 8;
	NEED(((list_v2)nvml_function("nvmlDeviceGetGraphicsRunningProcesses_v3"))(device, &n, list) == NVML_SUCCESS && n == 0);
	n = 8;
	NEED(((list_v1)nvml_function("nvmlDeviceGetMPSComputeRunningProcesses"))(device, &n, old) == NVML_SUCCESS && n == 0);

	kill(b, SIGKILL);
	waitpid(b, NULL, 0);
	n = 8;
	NEED(v3(device, &n, list) == NVML_SUCCESS && n == 1 && (pid_t)list[0].pid == a);
	kill(a, SIGKILL);
	waitpid(a, NULL, 0);
	n = 0;
	NEED(v3(device, &n, NULL) == NVML_SUCCESS && n == 0);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
}

typedef nvmlReturn_t (*detail_list)(nvmlDevice_t, nvmlProcessDetailList_t *);

void probe_details(void)
{
	nvmlProcessDetail_v1_t rows[4];
	nvmlProcessDetailList_t list = {.version = sizeof list | 1u << 24};
	pid_t a = holder(10), b = holder(20), other = stranger();
	detail_list get = (detail_list)nvml_function("nvmlDeviceGetRunningProcessDetailList");
	nvmlDevice_t device = nvml_device("GPU-00000000-0000-0000-0000-000000000001");

	NEED(get(device, &list) == NVML_ERROR_INSUFFICIENT_SIZE && list.numProcArrayEntries == 2);
	NEED(get(device, &list) == NVML_ERROR_INVALID_ARGUMENT); /* room for two, and none */
	list.procArray = rows;
	NEED(get(device, &list) == NVML_SUCCESS && list.numProcArrayEntries == 2);
	NEED(rows[0].usedGpuMemory + rows[1].usedGpuMemory == 30 * MIB && rows[0].usedGpuCcProtectedMemory == 0);
	NEED(((pid_t)rows[0].pid == a && (pid_t)rows[1].pid == b) || ((pid_t)rows[0].pid == b && (pid_t)rows[1].pid == a));
	for (list.mode = 1; list.mode <= 2; list.mode++) {
		list.numProcArrayEntries = 4;
		NEED(get(device, &list) == NVML_SUCCESS && list.numProcArrayEntries == 0);
	}
	NEED(get(device, &list) == NVML_ERROR_INVALID_ARGUMENT && get(device, NULL) == NVML_ERROR_INVALID_ARGUMENT);
	list.version = sizeof list | 2u << 24;
	NEED(get(device, &list) == NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	kill(a, SIGKILL), kill(b, SIGKILL), kill(other, SIGKILL);
	while (wait(NULL) > 0)
		;
}

/* Keeps device 0 busy for 50 ms and tells nobody. */
static void work(void)
{
	CUmodule module;
	CUfunction f;
	use_device(0);
	NEED(cuModuleLoadData(&module, "x") == CUDA_SUCCESS && cuModuleGetFunction(&f, module, "work_50000us") == CUDA_SUCCESS);
	NEED(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
}

void probe_utilisation(void)
{
	nvmlProcessUtilizationSample_t samples[8];
	nvmlProcessUtilizationInfo_v1_t rows[8];
	nvmlProcessesUtilizationInfo_t list = {.version = sizeof list | 1u << 24, .processSamplesCount = 8, .procUtilArray = rows};
	unsigned n = 8;
	int host = getenv("FAKEGPU_NVML_PROCESSES") != NULL;
	nvmlReturn_t (*old)(nvmlDevice_t, nvmlProcessUtilizationSample_t *, unsigned *, unsigned long long) =
		(nvmlReturn_t(*)(nvmlDevice_t, nvmlProcessUtilizationSample_t *, unsigned *, unsigned long long))nvml_function("nvmlDeviceGetProcessUtilization");
	nvmlReturn_t (*new)(nvmlDevice_t, nvmlProcessesUtilizationInfo_t *) =
		(nvmlReturn_t(*)(nvmlDevice_t, nvmlProcessesUtilizationInfo_t *))nvml_function("nvmlDeviceGetProcessesUtilizationInfo");
	nvmlDevice_t device = nvml_device("GPU-00000000-0000-0000-0000-000000000001");
	pid_t other = stranger();

	/* only a stranger has worked */
	NEED(old(device, samples, &n, 0) == NVML_ERROR_NOT_FOUND && n == 0);
	work();
	n = 8;
	if (host) { /* NVML's PIDs are of another namespace: none is known to be ours */
		NEED(old(device, samples, &n, 0) == NVML_ERROR_NOT_FOUND && new(device, &list) == NVML_ERROR_NOT_FOUND);
	} else {
		NEED(old(device, samples, &n, 0) == NVML_SUCCESS && n == 1 && (pid_t)samples[0].pid == getpid() && samples[0].smUtil > 0);
		NEED(new(device, &list) == NVML_SUCCESS && list.processSamplesCount == 1 && (pid_t)rows[0].pid == getpid());
	}
	list.version++;
	NEED(new(device, &list) == NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	NEED(old(device, NULL, NULL, 0) == NVML_ERROR_INVALID_ARGUMENT);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
}
