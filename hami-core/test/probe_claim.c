/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_claim.c: a process of claim_test.c's containers. It carries out one command a line and
 * answers with one line:
 *
 *	alloc <bytes>     ok, or the driver's code
 *	free              ok: everything
 *	info              free and total bytes, by cuMemGetInfo
 *	nvml              free, total and used bytes, by NVML
 *	list              NVML's processes, as <pid>:<bytes>
 *	pid               this process's, in its container
 *	hide              ok: closes the region's descriptors, as daemons do
 *	bare              ok: begins a child that no fork handler sees, and that does not end
 *	suspend <pid>     ok: takes a process's memory off the device
 *	resume <pid>      ok, or the driver's code
 *	exit, _exit, crash
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "nvml_abi.h"
#include "probe.h"

CUresult cuCheckpointProcessLock(int, void *);
CUresult cuCheckpointProcessUnlock(int, void *);
CUresult cuCheckpointProcessCheckpoint(int, CUcheckpointCheckpointArgs *);
CUresult cuCheckpointProcessRestore(int, CUcheckpointRestoreArgs *);

static CUdeviceptr blocks[4096];
static int count;
static nvmlDevice_t device;

static void *find_nvml(const char *name)
{
	static void *library;
	if (!library)
		library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	void *found = library ? dlsym(library, name) : NULL;
	NEED(found != NULL);
	return found;
}

static void open_nvml(void)
{
	nvmlReturn_t (*init)(void) = (nvmlReturn_t(*)(void))find_nvml("nvmlInit_v2");
	nvmlReturn_t (*by_uuid)(const char *, nvmlDevice_t *) =
		(nvmlReturn_t(*)(const char *, nvmlDevice_t *))find_nvml("nvmlDeviceGetHandleByUUID");
	NEED(init() == NVML_SUCCESS && by_uuid(getenv("PROBE_UUID"), &device) == NVML_SUCCESS);
}

static void print_result(CUresult r)
{
	printf(r ? "%d\n" : "ok\n", r);
}

static void allocate_block(size_t bytes)
{
	CUresult r = cuMemAlloc_v2(&blocks[count], bytes);
	count += r == CUDA_SUCCESS;
	print_result(r);
}

static void free_all(void)
{
	while (count)
		NEED(cuMemFree_v2(blocks[--count]) == CUDA_SUCCESS);
	print_result(CUDA_SUCCESS);
}

static void ask_cuda(void)
{
	size_t left, all;
	NEED(cuMemGetInfo_v2(&left, &all) == CUDA_SUCCESS);
	printf("%zu %zu\n", left, all);
}

static void ask_nvml(void)
{
	nvmlMemory_t m;
	nvmlReturn_t (*info)(nvmlDevice_t, nvmlMemory_t *) =
		(nvmlReturn_t(*)(nvmlDevice_t, nvmlMemory_t *))find_nvml("nvmlDeviceGetMemoryInfo");
	NEED(info(device, &m) == NVML_SUCCESS);
	printf("%llu %llu %llu\n", (unsigned long long)m.free, (unsigned long long)m.total,
	       (unsigned long long)m.used);
}

static void list_processes(void)
{
	nvmlProcessInfo_v2_t list[64];
	unsigned int n = 64;
	nvmlReturn_t (*running)(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *) =
		(nvmlReturn_t(*)(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *))find_nvml(
			"nvmlDeviceGetComputeRunningProcesses_v3");
	NEED(running(device, &n, list) == NVML_SUCCESS);
	for (unsigned int i = 0; i < n; i++)
		printf("%s%u:%llu", i ? " " : "", list[i].pid,
		       (unsigned long long)list[i].usedGpuMemory);
	printf("\n");
}

/* The fake driver's own file stays open: the fake would take the process for dead. */
static void close_region(void)
{
	int closed[64], n = 0;
	char path[300], target[256];
	DIR *d = opendir("/proc/self/fd");
	for (struct dirent *e; d && n < 64 && (e = readdir(d));) {
		snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
		ssize_t length = readlink(path, target, sizeof target - 1);
		target[length < 0 ? 0 : length] = 0;
		if (strstr(target, "vgpu.cache"))
			closed[n++] = atoi(e->d_name);
	}
	closedir(d);
	for (int i = 0; i < n; i++)
		close(closed[i]);
	print_result(n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static void begin_bare_child(void)
{
	if (syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L) == 0)
		for (;;)
			pause();
	print_result(CUDA_SUCCESS);
}

static void suspend_process(int pid)
{
	CUresult r = cuCheckpointProcessLock(pid, NULL);
	print_result(r ? r : cuCheckpointProcessCheckpoint(pid, NULL));
}

static void resume_process(int pid)
{
	CUresult r = cuCheckpointProcessRestore(pid, NULL);
	print_result(r ? r : cuCheckpointProcessUnlock(pid, NULL));
}

static void carry_out(const char *word, const char *argument)
{
	if (!strcmp(word, "alloc"))
		allocate_block(strtoull(argument, NULL, 10));
	else if (!strcmp(word, "free"))
		free_all();
	else if (!strcmp(word, "info"))
		ask_cuda();
	else if (!strcmp(word, "nvml"))
		ask_nvml();
	else if (!strcmp(word, "list"))
		list_processes();
	else if (!strcmp(word, "pid"))
		printf("%d\n", (int)getpid());
	else if (!strcmp(word, "hide"))
		close_region();
	else if (!strcmp(word, "bare"))
		begin_bare_child();
	else if (!strcmp(word, "suspend"))
		suspend_process(atoi(argument));
	else if (!strcmp(word, "resume"))
		resume_process(atoi(argument));
	else if (!strcmp(word, "exit"))
		exit(0);
	else if (!strcmp(word, "_exit"))
		_exit(0);
	else if (!strcmp(word, "crash"))
		abort();
	else
		printf("what is %s?\n", word);
}

int main(void)
{
	char line[128], word[32], argument[64];
	CUcontext context;
	setvbuf(stdout, NULL, _IOLBF, 0);
	NEED(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
	     cuCtxSetCurrent(context) == CUDA_SUCCESS);
	open_nvml();
	printf("ready\n");
	while (fgets(line, sizeof line, stdin)) {
		argument[0] = 0;
		if (sscanf(line, "%31s %63s", word, argument) >= 1)
			carry_out(word, argument);
	}
	return 0;
}
