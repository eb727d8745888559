/* SPDX-License-Identifier: Apache-2.0 */
/* client_processes.c: who runs on each device of NVML, as `nvidia-smi` lists it. */
#define _GNU_SOURCE
#include "client.h"
#include "nvml_abi.h"

#include <dlfcn.h>
#include <stdio.h>

#define ROOM 1024

struct nvml_calls {
	nvmlReturn_t (*init)(void);
	nvmlReturn_t (*count)(unsigned int *);
	nvmlReturn_t (*handle)(unsigned int, nvmlDevice_t *);
	nvmlReturn_t (*uuid)(nvmlDevice_t, char *, unsigned int);
	nvmlReturn_t (*processes)(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *);
};

static int reach_nvml(struct nvml_calls *n)
{
	void *h = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!h)
		return -1;
	*(void **)&n->init = dlsym(h, "nvmlInit_v2");
	*(void **)&n->count = dlsym(h, "nvmlDeviceGetCount_v2");
	*(void **)&n->handle = dlsym(h, "nvmlDeviceGetHandleByIndex_v2");
	*(void **)&n->uuid = dlsym(h, "nvmlDeviceGetUUID");
	*(void **)&n->processes = dlsym(h, "nvmlDeviceGetComputeRunningProcesses_v3");
	return n->init && n->count && n->handle && n->uuid && n->processes && n->init() == NVML_SUCCESS ? 0 : -1;
}

static void print_device(const struct nvml_calls *n, unsigned int index)
{
	static nvmlProcessInfo_v2_t list[ROOM];
	unsigned int count = ROOM;
	nvmlDevice_t device;
	char uuid[96];
	if (n->handle(index, &device) || n->uuid(device, uuid, sizeof uuid))
		return;
	nvmlReturn_t r = n->processes(device, &count, list);
	printf("processes nvml_index=%u uuid=%s count=%u nvml_result=%d\n", index, uuid, count, r);
	for (unsigned int i = 0; r == NVML_SUCCESS && i < count; i++)
		printf("process uuid=%s pid=%u used_mib=%llu\n", uuid, list[i].pid, list[i].usedGpuMemory >> 20);
}

CUresult report_processes(struct client *c)
{
	struct nvml_calls n;
	unsigned int count = 0;
	(void)c;
	if (reach_nvml(&n) || n.count(&count)) {
		printf("processes nvml=none\n");
		return CUDA_ERROR_NOT_FOUND;
	}
	for (unsigned int i = 0; i < count; i++)
		print_device(&n, i);
	return CUDA_SUCCESS;
}
