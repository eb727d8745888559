/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_device.c: what a device is. */
#include "cuda_exports.h"
#include "cuda_fake.h"
#include "cuda_mps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Declares `gpu`; returns from the caller when CUDA is not initialised or the device is unknown. */
#define REQUIRE_GPU(device)                          \
	if (fg_ready() != CUDA_SUCCESS)              \
		return fg_ready();                   \
	struct fg_gpu *gpu = fg_gpu(device);         \
	if (!gpu)                                    \
		return CUDA_ERROR_INVALID_DEVICE

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	REQUIRE_GPU(ordinal);
	(void)gpu;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = fake.count;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
	REQUIRE_GPU(device);
	if (!name || length <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(name, (size_t)length, "%s", gpu->model);
	return CUDA_SUCCESS;
}

static void uuid_bytes(const char *text, CUuuid *out)
{
	const char *p = text + 4; /* after "GPU-" or "MIG-" */
	for (int i = 0; i < 16; i++, p += 2) {
		if (*p == '-')
			p++;
		char pair[3] = {p[0], p[1], 0};
		out->bytes[i] = (unsigned char)strtoul(pair, NULL, 16);
	}
}

/* A partition's first version of it is that of the device it lies on. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	REQUIRE_GPU(device);
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	uuid_bytes(gpu->gi_serial ? gpu->parent : gpu->uuid, uuid);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	REQUIRE_GPU(device);
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	uuid_bytes(gpu->uuid, uuid);
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	REQUIRE_GPU(device);
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = gpu->memory;
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
	size_t total;
	CUresult r = bytes ? cuDeviceTotalMem_v2(&total, device) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*bytes = total > 0xffffffffu ? 0xffffffffu : (unsigned int)total;
	return r;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
	REQUIRE_GPU(device);
	if (!major || !minor)
		return CUDA_ERROR_INVALID_VALUE;
	*major = gpu->cc_major;
	*minor = gpu->cc_minor;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
	REQUIRE_GPU(device);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = fg_mps_sms(device, gpu->sms); break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = FG_SM_THREADS; break;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = (int)gpu->bus; break;
	case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: *value = (int)gpu->slot; break;
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: *value = (int)gpu->domain; break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = gpu->cc_major; break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = gpu->cc_minor; break;
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: *value = fg_shares_with_host(); break;
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
	case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *value = 1; break;
	default: return CUDA_ERROR_INVALID_VALUE; /* this fake does not know it, and says so */
	}
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
	REQUIRE_GPU(device);
	if (!id || length < 13)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(id, (size_t)length, "%04x:%02x:%02x.0", gpu->domain, gpu->bus, gpu->slot);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	unsigned domain, bus, slot;
	if (!device || !id || sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3)
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < fake.count; i++)
		if (fake.gpu[i]->domain == domain && fake.gpu[i]->bus == bus && fake.gpu[i]->slot == slot)
			return *device = i, CUDA_SUCCESS;
	return CUDA_ERROR_INVALID_DEVICE;
}
