/* SPDX-License-Identifier: Apache-2.0 */
/* nvml_virtual.c: what the driver of a virtual machine says of a vGPU and its licence. */
#include "nvml_fake.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

int fg_is_vgpu(const struct fg_gpu *gpu)
{
	return gpu->virt == FG_VIRTUAL_VGPU;
}

DECLARE(nvmlDeviceGetVirtualizationMode, nvmlDevice_t device, int *mode)
{
	CHECK_DEVICE(device, mode);
	if (device->gpu.virt == FG_VIRTUAL_UNSAID)
		return NVML_ERROR_NOT_SUPPORTED;
	*mode = device->gpu.virt - FG_VIRTUAL_NONE;
	return NVML_SUCCESS;
}

#define EXPIRY_NOT_AVAILABLE 0
#define EXPIRY_VALID 2
#define EXPIRY_PERMANENT 4
#define FEATURE_RTX 2
#define FEATURE_COMPUTE 4

/* nvmlGridLicenseExpiry_t, nvmlGridLicensableFeature_t, nvmlGridLicensableFeatures_t */
struct expiry {
	unsigned int year;
	unsigned short month, day, hour, minute, second;
	unsigned char status;
};
struct feature {
	int code;
	unsigned int state;
	char info[128], product[128];
	unsigned int enabled;
	struct expiry expiry;
};
struct features {
	int supported;
	unsigned int count;
	struct feature list[3];
};

static struct expiry expiry_of(int64_t licence)
{
	time_t end = (time_t)licence;
	struct tm t;
	if (licence == FG_LICENCE_OK)
		return (struct expiry){.status = EXPIRY_PERMANENT};
	if (licence == FG_LICENCE_NONE || !gmtime_r(&end, &t))
		return (struct expiry){.status = EXPIRY_NOT_AVAILABLE};
	return (struct expiry){
		.year = (unsigned)t.tm_year + 1900,
		.month = (unsigned short)(t.tm_mon + 1),
		.day = (unsigned short)t.tm_mday,
		.hour = (unsigned short)t.tm_hour,
		.minute = (unsigned short)t.tm_min,
		.second = (unsigned short)t.tm_sec,
		.status = EXPIRY_VALID,
	};
}

/* Of the two that such a driver can license, a machine for CUDA has one enabled. */
DECLARE(nvmlDeviceGetGridLicensableFeatures_v4, nvmlDevice_t device, struct features *out)
{
	CHECK_DEVICE(device, out);
	memset(out, 0, sizeof *out);
	if (!fg_is_vgpu(&device->gpu))
		return NVML_SUCCESS;
	fg_lock();
	int64_t licence = fg_licence_of(&device->gpu);
	fg_unlock();
	out->supported = 1;
	out->count = 2;
	out->list[0] = (struct feature){.code = FEATURE_RTX, .product = "NVIDIA RTX Virtual Workstation"};
	out->list[1] = (struct feature){
		.code = FEATURE_COMPUTE,
		.product = "NVIDIA Virtual Compute Server",
		.enabled = 1,
		.state = licence == FG_LICENCE_OK || licence > (int64_t)time(NULL),
		.expiry = expiry_of(licence),
	};
	return NVML_SUCCESS;
}
