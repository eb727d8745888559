/* SPDX-License-Identifier: Apache-2.0 */
/* client_report.c: what the program sees: devices, memory, environment. */
#define _GNU_SOURCE
#include "client.h"
#include "nvml_abi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

extern char **environ;

static void uuid_text(const CUuuid *u, char out[48])
{
	const unsigned char *b = u->bytes;
	snprintf(out, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
		 b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* NVML's view of the device with this UUID; 0 when there is no NVML. */
static int nvml_memory(const char *uuid, nvmlMemory_t *out)
{
	nvmlReturn_t (*init)(void), (*by_uuid)(const char *, nvmlDevice_t *), (*memory)(nvmlDevice_t, nvmlMemory_t *);
	nvmlDevice_t device;
	void *h = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!h)
		return 0;
	*(void **)&init = dlsym(h, "nvmlInit_v2");
	*(void **)&by_uuid = dlsym(h, "nvmlDeviceGetHandleByUUID");
	*(void **)&memory = dlsym(h, "nvmlDeviceGetMemoryInfo");
	if (!init || !by_uuid || !memory || init())
		return 0;
	return by_uuid(uuid, &device) == NVML_SUCCESS && memory(device, out) == NVML_SUCCESS;
}

static CUresult report_device(struct client *c, int i)
{
	CUuuid raw;
	char uuid[48], name[96];
	size_t total, free_bytes, info_total;
	nvmlMemory_t memory;
	CUcontext context;
	CUresult r;
	if ((r = c->driver.DeviceGetUuid(&raw, i)) || (r = c->driver.DeviceGetName(name, sizeof name, i)) ||
	    (r = c->driver.DeviceTotalMem(&total, i)) || (r = c->driver.DevicePrimaryCtxRetain(&context, i)) ||
	    (r = c->driver.CtxSetCurrent(context)) || (r = c->driver.MemGetInfo(&free_bytes, &info_total)))
		return r;
	uuid_text(&raw, uuid);
	printf("info index=%d uuid=%s name=\"%s\" total=%zu meminfo_free=%zu meminfo_total=%zu", i, uuid, name, total,
	       free_bytes, info_total);
	if (nvml_memory(uuid, &memory))
		printf(" nvml_total=%llu nvml_used=%llu nvml_free=%llu\n", memory.total, memory.used, memory.free);
	else
		printf(" nvml_total=none\n");
	return CUDA_SUCCESS;
}

CUresult report_info(struct client *c)
{
	int count;
	CUresult r = client_start(c);
	if (r == CUDA_SUCCESS)
		r = c->driver.DeviceGetCount(&count);
	if (r != CUDA_SUCCESS) {
		printf("info result=%s\n", client_error(c, r));
		return r;
	}
	printf("info devices=%d\n", count);
	for (int i = 0; i < count && r == CUDA_SUCCESS; i++)
		r = report_device(c, i);
	if (r != CUDA_SUCCESS)
		printf("info result=%s\n", client_error(c, r));
	CUcontext context;
	if (c->driver.DevicePrimaryCtxRetain(&context, c->device) == CUDA_SUCCESS)
		c->driver.CtxSetCurrent(context);
	return r;
}

static void print_file(const char *path)
{
	char line[512];
	FILE *f = fopen(path, "re");
	if (!f) {
		printf("env limits=none\n");
		return;
	}
	while (fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = 0;
		printf("env limits: %s\n", line);
	}
	fclose(f);
}

static int library_mapped(void)
{
	char line[1024];
	int found = 0;
	FILE *f = fopen("/proc/self/maps", "re");
	while (f && fgets(line, sizeof line, f))
		found |= strstr(line, "/libvgpu") != NULL;
	if (f)
		fclose(f);
	return found;
}

void report_environment(void)
{
	for (char **e = environ; *e; e++)
		if (!strncmp(*e, "CUDA_", 5) || !strncmp(*e, "NVIDIA_", 7))
			printf("env %s\n", *e);
	printf("env libvgpu=%s\n", library_mapped() ? "mapped" : "no");
	print_file("/usr/local/vgpu/limits");
}
