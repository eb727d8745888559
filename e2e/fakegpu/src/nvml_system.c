/* SPDX-License-Identifier: Apache-2.0 */
/* nvml_system.c: initialisation, versions, error texts. */
#include "nvml_fake.h"

#include <stdio.h>
#include <string.h>

struct fg_nvml nvml = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int fg_nvml_ready(void)
{
	return __atomic_load_n(&nvml.references, __ATOMIC_ACQUIRE) > 0;
}

nvmlReturn_t fg_nvml_known(nvmlDevice_t device)
{
	if (!fg_nvml_ready())
		return NVML_ERROR_UNINITIALIZED;
	for (unsigned i = 0; i < nvml.count; i++)
		if (device == &nvml.device[i])
			return NVML_SUCCESS;
	return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t fg_nvml_check(nvmlDevice_t device)
{
	nvmlReturn_t r = fg_nvml_known(device);
	if (r == NVML_SUCCESS && __atomic_load_n(&fg_state()->device[device->gpu.minor].lost, __ATOMIC_RELAXED))
		r = NVML_ERROR_GPU_IS_LOST;
	return r;
}

nvmlReturn_t fg_nvml_text(char *out, unsigned length, const char *text)
{
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (strlen(text) >= length)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(out, text);
	return NVML_SUCCESS;
}

static nvmlReturn_t start(void)
{
	char error[768];
	if (fg_topology_read(fg_dir(), &nvml.topology, error, sizeof error) ||
	    fg_state_open(fg_dir(), error, sizeof error)) {
		fprintf(stderr, "fake libnvidia-ml: %s\n", error);
		return NVML_ERROR_DRIVER_NOT_LOADED;
	}
	nvml.count = 0;
	for (int i = 0; i < nvml.topology.count; i++) {
		if (!fg_gpu_visible(&nvml.topology.gpu[i]))
			continue;
		nvml.device[nvml.count].gpu = nvml.topology.gpu[i];
		nvml.device[nvml.count].index = nvml.count;
		nvml.count++;
	}
	fg_nvml_make_nodes();
	return NVML_SUCCESS;
}

FG_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags);
FG_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	(void)flags;
	pthread_mutex_lock(&nvml.mutex);
	nvmlReturn_t r = nvml.references ? NVML_SUCCESS : start();
	if (r == NVML_SUCCESS)
		__atomic_add_fetch(&nvml.references, 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&nvml.mutex);
	return r;
}

FG_EXPORT nvmlReturn_t nvmlInit_v2(void);
FG_EXPORT nvmlReturn_t nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

FG_EXPORT nvmlReturn_t nvmlInit(void);
FG_EXPORT nvmlReturn_t nvmlInit(void)
{
	return nvmlInitWithFlags(0);
}

FG_EXPORT nvmlReturn_t nvmlShutdown(void);
FG_EXPORT nvmlReturn_t nvmlShutdown(void)
{
	pthread_mutex_lock(&nvml.mutex);
	nvmlReturn_t r = nvml.references ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
	if (nvml.references)
		__atomic_sub_fetch(&nvml.references, 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&nvml.mutex);
	return r;
}

FG_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length);
FG_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	return fg_nvml_ready() ? fg_nvml_text(version, length, nvml.topology.driver) : NVML_ERROR_UNINITIALIZED;
}

FG_EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length);
FG_EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	char text[64];
	if (!fg_nvml_ready())
		return NVML_ERROR_UNINITIALIZED;
	snprintf(text, sizeof text, "%d.%s", nvml.topology.cuda_major, nvml.topology.driver);
	return fg_nvml_text(version, length, text);
}

FG_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version);
FG_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
	if (!fg_nvml_ready())
		return NVML_ERROR_UNINITIALIZED;
	if (!version)
		return NVML_ERROR_INVALID_ARGUMENT;
	*version = nvml.topology.cuda_major * 1000 + nvml.topology.cuda_minor * 10;
	return NVML_SUCCESS;
}

FG_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version);
FG_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	return nvmlSystemGetCudaDriverVersion(version);
}

FG_EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length);
FG_EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
	char path[64], text[256] = "";
	if (!fg_nvml_ready())
		return NVML_ERROR_UNINITIALIZED;
	snprintf(path, sizeof path, "/proc/%u/comm", pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return NVML_ERROR_NOT_FOUND;
	if (!fgets(text, sizeof text, f))
		text[0] = 0;
	fclose(f);
	text[strcspn(text, "\n")] = 0;
	return fg_nvml_text(name, length, text);
}

FG_EXPORT const char *nvmlErrorString(nvmlReturn_t code);
FG_EXPORT const char *nvmlErrorString(nvmlReturn_t code)
{
	switch (code) {
	case NVML_SUCCESS: return "Success";
	case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
	case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
	case FG_NVML_NO_PERMISSION: return "Insufficient Permissions";
	case FG_NVML_RESET_REQUIRED: return "GPU requires reset";
	case FG_NVML_IN_USE: return "In use by another client";
	case FG_NVML_INSUFFICIENT_RESOURCES: return "Insufficient Resources";
	case NVML_ERROR_NOT_FOUND: return "Not Found";
	case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
	case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case NVML_ERROR_TIMEOUT: return "Timeout";
	case NVML_ERROR_FUNCTION_NOT_FOUND: return "Function Not Found";
	case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
	case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
	default: return "Unknown Error";
	}
}
