/* SPDX-License-Identifier: Apache-2.0 */
/*
 * smi.c: what nvidia-smi does: no CUDA, NVML loaded by itself, here with RTLD_DEEPBIND. Prints each
 * device's UUID, total MiB and number of processes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "nvml_abi.h"

#define GET(name) name = (__typeof__(name))dlsym(h, #name)
#define NEED(condition)                                                  \
	do {                                                             \
		if (!(condition))                                        \
			return fprintf(stderr, "%s\n", #condition), 1;   \
	} while (0)

static nvmlReturn_t (*nvmlInit_v2)(void), (*nvmlDeviceGetCount_v2)(unsigned *), (*nvmlDeviceGetHandleByIndex_v2)(unsigned, nvmlDevice_t *);
static nvmlReturn_t (*nvmlDeviceGetUUID)(nvmlDevice_t, char *, unsigned), (*nvmlDeviceGetMemoryInfo)(nvmlDevice_t, nvmlMemory_t *);
static nvmlReturn_t (*nvmlDeviceGetComputeRunningProcesses_v3)(nvmlDevice_t, unsigned *, nvmlProcessInfo_v2_t *);

int main(void)
{
	void *h = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
	unsigned count = 0, processes;
	NEED(h);
	GET(nvmlInit_v2);
	GET(nvmlDeviceGetCount_v2);
	GET(nvmlDeviceGetHandleByIndex_v2);
	GET(nvmlDeviceGetUUID);
	GET(nvmlDeviceGetMemoryInfo);
	GET(nvmlDeviceGetComputeRunningProcesses_v3);
	NEED(nvmlInit_v2() == NVML_SUCCESS && nvmlDeviceGetCount_v2(&count) == NVML_SUCCESS);
	for (unsigned i = 0; i < count; i++) {
		nvmlDevice_t device;
		char uuid[96];
		nvmlMemory_t memory;
		NEED(nvmlDeviceGetHandleByIndex_v2(i, &device) == NVML_SUCCESS && nvmlDeviceGetUUID(device, uuid, sizeof uuid) == NVML_SUCCESS);
		NEED(nvmlDeviceGetMemoryInfo(device, &memory) == NVML_SUCCESS);
		processes = 0;
		nvmlDeviceGetComputeRunningProcesses_v3(device, &processes, NULL);
		printf("%s total=%lluMiB processes=%u\n", uuid, memory.total >> 20, processes);
	}
	return 0;
}
