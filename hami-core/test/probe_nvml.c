/* SPDX-License-Identifier: Apache-2.0 */
/* probe_nvml.c: NVML's lists of processes inside a container. */
#define _GNU_SOURCE
#include "probe.h"

#include <dlfcn.h>
#include <signal.h>
#include <string.h>
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

void probe_process_lists(void)
{
	nvmlProcessInfo_v2_t list[8];
	nvmlProcessInfo_v1_t old[8];
	nvmlMemory_t memory;
	unsigned n = 0;
	pid_t a = holder(10), b = holder(20);
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
}
