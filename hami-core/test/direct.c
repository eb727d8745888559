/* SPDX-License-Identifier: Apache-2.0 */
/* direct.c: calls of the driver's functions by a program that is linked to no driver. */
#include <stddef.h>

#include "cuda_abi.h"
#include "nvml_abi.h"

#define OPTIONAL __attribute__((weak)) /* found in whatever is preloaded */
OPTIONAL CUresult cuInit(unsigned int flags);
OPTIONAL CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
OPTIONAL CUresult cuDeviceGetCount(int *count);
OPTIONAL nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);

int main(void)
{
	CUdeviceptr at;
	if (!cuInit || !cuMemAlloc_v2 || !nvmlDeviceGetMemoryInfo || cuDeviceGetCount)
		return 1;
	return cuInit(0) != CUDA_ERROR_NOT_INITIALIZED ||
	       cuMemAlloc_v2(&at, 1) != CUDA_ERROR_NOT_INITIALIZED ||
	       nvmlDeviceGetMemoryInfo(NULL, NULL) != NVML_ERROR_LIBRARY_NOT_FOUND;
}
