/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.c: sizes and places of everything we share with NVIDIA's libraries, one a line. Compiled
 * twice, with our declarations and with NVIDIA's (-DTHEIRS), and compared: see headers.sh.
 */
#include <stddef.h>
#include <stdio.h>

#if defined(CUDA_LAYOUT) && defined(THEIRS)
#include <cuda.h>
#elif defined(CUDA_LAYOUT)
#include "cuda_abi.h"
#elif defined(THEIRS)
#include <nvml.h>
#else
#include "nvml_abi.h"
#endif

#define SIZE(type) printf("%s %zu\n", #type, sizeof(type))
#define AT(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(type, field))
#define VALUE(name) printf("%s %lld\n", #name, (long long)(name))

int main(void)
{
#ifdef CUDA_LAYOUT
	SIZE(CUlaunchConfig), AT(CUlaunchConfig, hStream), AT(CUlaunchConfig, numAttrs);
	SIZE(CUDA_LAUNCH_PARAMS), AT(CUDA_LAUNCH_PARAMS, sharedMemBytes), AT(CUDA_LAUNCH_PARAMS, hStream);
	SIZE(CUipcMemHandle), SIZE(CUmemGenericAllocationHandle), SIZE(CUdeviceptr), SIZE(CUuuid);
	SIZE(CUDA_EXTERNAL_MEMORY_HANDLE_DESC), AT(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size);
	SIZE(CUmemAllocationProp), AT(CUmemAllocationProp, location);
	SIZE(CUmemPoolProps), AT(CUmemPoolProps, location);
	SIZE(CUDA_MEM_ALLOC_NODE_PARAMS), AT(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize), AT(CUDA_MEM_ALLOC_NODE_PARAMS, dptr);
	SIZE(CUDA_ARRAY_DESCRIPTOR), AT(CUDA_ARRAY_DESCRIPTOR, NumChannels);
	SIZE(CUDA_ARRAY3D_DESCRIPTOR), AT(CUDA_ARRAY3D_DESCRIPTOR, Flags);
	SIZE(CUarrayMapInfo), AT(CUarrayMapInfo, resource), AT(CUarrayMapInfo, subresource), AT(CUarrayMapInfo, subresource.sparseLevel.extentWidth);
	AT(CUarrayMapInfo, subresource.miptail.offset), AT(CUarrayMapInfo, memOperationType), AT(CUarrayMapInfo, memHandle);
	VALUE(CU_MEM_OPERATION_TYPE_UNMAP), VALUE(CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL), VALUE(CU_RESOURCE_TYPE_MIPMAPPED_ARRAY);
	VALUE(CUDA_ERROR_NOT_PERMITTED), VALUE(CUDA_ERROR_NOT_SUPPORTED), VALUE(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	VALUE(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS), VALUE(CU_MEM_ADVISE_SET_PREFERRED_LOCATION), VALUE(CU_MEM_ADVISE_SET_ACCESSED_BY);
	VALUE(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), VALUE(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), VALUE(CU_STREAM_CAPTURE_MODE_RELAXED);
	VALUE(CU_MEM_LOCATION_TYPE_DEVICE), VALUE(CU_MEM_ATTACH_GLOBAL), VALUE(CU_STREAM_PER_THREAD);
#else
	SIZE(nvmlMemory_t), AT(nvmlMemory_t, used);
	SIZE(nvmlMemory_v2_t), AT(nvmlMemory_v2_t, used), AT(nvmlMemory_v2_t, reserved);
	SIZE(nvmlPciInfo_t), AT(nvmlPciInfo_t, busId);
	SIZE(nvmlProcessInfo_v1_t), AT(nvmlProcessInfo_v1_t, usedGpuMemory);
	SIZE(nvmlProcessInfo_v2_t), AT(nvmlProcessInfo_v2_t, computeInstanceId);
	SIZE(nvmlProcessDetail_v1_t), AT(nvmlProcessDetail_v1_t, usedGpuCcProtectedMemory);
	SIZE(nvmlProcessDetailList_t), AT(nvmlProcessDetailList_t, procArray);
	SIZE(nvmlProcessUtilizationSample_t), AT(nvmlProcessUtilizationSample_t, decUtil);
	SIZE(nvmlProcessUtilizationInfo_v1_t), AT(nvmlProcessUtilizationInfo_v1_t, pid), AT(nvmlProcessUtilizationInfo_v1_t, ofaUtil);
	SIZE(nvmlProcessesUtilizationInfo_t), AT(nvmlProcessesUtilizationInfo_t, procUtilArray);
	SIZE(nvmlEventData_t), SIZE(nvmlUtilization_t), SIZE(nvmlGpuInstanceProfileInfo_t), SIZE(nvmlGpuInstancePlacement_t);
	VALUE(NVML_ERROR_INSUFFICIENT_SIZE), VALUE(NVML_ERROR_NOT_FOUND), VALUE(NVML_ERROR_GPU_IS_LOST);
	VALUE(NVML_ERROR_FUNCTION_NOT_FOUND), VALUE(NVML_ERROR_LIBRARY_NOT_FOUND), VALUE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
#endif
	return 0;
}
