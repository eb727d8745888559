/* SPDX-License-Identifier: Apache-2.0 */
/* probe_device.c: a device to work on, what is left of it, memory of it; declared in probe.h. */
#include "probe.h"

void use_device(CUdevice device)
{
	CUcontext context;
	NEED(cuInit(0) == CUDA_SUCCESS);
	NEED(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
	NEED(cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

size_t left(void)
{
	size_t free_bytes, total;
	NEED(cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS);
	return free_bytes;
}

CUresult take(uint64_t bytes)
{
	CUdeviceptr at;
	return cuMemAlloc_v2(&at, bytes);
}
