/* SPDX-License-Identifier: Apache-2.0 */
/* client_report.c: what the program sees: devices, memory, environment. */
#define _GNU_SOURCE
#include "client.h"
#include "nvml_abi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

extern char **environ;

static void uuid_text(const char *kind, const CUuuid *u, char out[48])
{
	const unsigned char *b = u->bytes;
	snprintf(out, 48, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", kind, b[0], b[1],
		 b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
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

/* The partition behind a device, by the name that CUDA gives it: "<model> MIG <profile>"; NULL for a whole device. */
static const char *profile_of(const char *name)
{
	const char *at = strstr(name, " MIG ");
	return at ? at + 5 : NULL;
}

/* A partition has a UUID of its own, which only the second version of the call tells. */
static CUresult uuid_of(struct client *c, int i, const char *name, char out[48])
{
	CUuuid raw;
	CUresult (*second)(CUuuid *, CUdevice) = NULL;
	if (profile_of(name))
		*(void **)&second = dlsym(RTLD_DEFAULT, "cuDeviceGetUuid_v2");
	CUresult r = second ? second(&raw, i) : c->driver.DeviceGetUuid(&raw, i);
	if (r == CUDA_SUCCESS)
		uuid_text(second ? "MIG" : "GPU", &raw, out);
	return r;
}

static CUresult report_device(struct client *c, int i)
{
	char uuid[48], name[96];
	size_t total, free_bytes, info_total;
	int sms;
	nvmlMemory_t memory;
	CUcontext context;
	CUresult r;
	if ((r = c->driver.DeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, i)) ||
	    (r = c->driver.DeviceGetName(name, sizeof name, i)) || (r = uuid_of(c, i, name, uuid)) ||
	    (r = c->driver.DeviceTotalMem(&total, i)) || (r = c->driver.DevicePrimaryCtxRetain(&context, i)) ||
	    (r = c->driver.CtxSetCurrent(context)) || (r = c->driver.MemGetInfo(&free_bytes, &info_total)))
		return r;
	printf("info index=%d uuid=%s name=\"%s\" total=%zu meminfo_free=%zu meminfo_total=%zu sms=%d", i, uuid, name, total,
	       free_bytes, info_total, sms);
	if (profile_of(name))
		printf(" profile=%s", profile_of(name));
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

static int mapped(const char *file)
{
	char line[1024];
	int found = 0;
	FILE *f = fopen("/proc/self/maps", "re");
	while (f && fgets(line, sizeof line, f))
		found |= strstr(line, file) != NULL;
	if (f)
		fclose(f);
	return found;
}

void report_environment(void)
{
	for (char **e = environ; *e; e++)
		if (!strncmp(*e, "CUDA_", 5) || !strncmp(*e, "NVIDIA_", 7))
			printf("env %s\n", *e);
	printf("env libvgpu=%s\n", mapped("/libvgpu") ? "mapped" : "no");
	printf("env standin=%s\n", mapped("/libcuda.so.driver") ? "mapped" : "no");
	print_file("/usr/local/vgpu/limits");
}
