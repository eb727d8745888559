/* SPDX-License-Identifier: Apache-2.0 */
/* nvml_mig_abi.h: the types and codes of NVML's partition functions, which only the fake needs. */
#ifndef FAKEGPU_NVML_MIG_ABI_H
#define FAKEGPU_NVML_MIG_ABI_H

#include "nvml_abi.h"

enum {
	FG_NVML_NO_PERMISSION = 4,
	FG_NVML_RESET_REQUIRED = 16,
	FG_NVML_IN_USE = 19,
	FG_NVML_INSUFFICIENT_RESOURCES = 23,
};

typedef struct nvmlGpuInstance_st *nvmlGpuInstance_t;
typedef struct nvmlComputeInstance_st *nvmlComputeInstance_t;

typedef struct {
	nvmlDevice_t device;
	unsigned int id;
	unsigned int profileId;
	nvmlGpuInstancePlacement_t placement;
} nvmlGpuInstanceInfo_t;

typedef nvmlGpuInstancePlacement_t nvmlComputeInstancePlacement_t;

typedef struct {
	nvmlDevice_t device; /* the MIG device */
	nvmlGpuInstance_t gpuInstance;
	unsigned int id;
	unsigned int profileId;
	nvmlComputeInstancePlacement_t placement;
} nvmlComputeInstanceInfo_t;

typedef struct { /* of the first version of the call */
	nvmlDevice_t device;
	nvmlGpuInstance_t gpuInstance;
	unsigned int id;
	unsigned int profileId;
} nvmlComputeInstanceInfo_v1_t;

typedef struct {
	unsigned int id;
	unsigned int sliceCount;
	unsigned int instanceCount;
	unsigned int multiprocessorCount;
	unsigned int sharedCopyEngineCount;
	unsigned int sharedDecoderCount;
	unsigned int sharedEncoderCount;
	unsigned int sharedJpegCount;
	unsigned int sharedOfaCount;
} nvmlComputeInstanceProfileInfo_t;

typedef struct {
	unsigned int version; /* sizeof | 2 << 24 */
	nvmlComputeInstanceProfileInfo_t info;
	char name[96];
} nvmlComputeInstanceProfileInfo_v2_t;

typedef struct {
	unsigned int multiprocessorCount;
	unsigned int sharedCopyEngineCount;
	unsigned int sharedDecoderCount;
	unsigned int sharedEncoderCount;
	unsigned int sharedJpegCount;
	unsigned int sharedOfaCount;
	unsigned int gpuInstanceSliceCount;
	unsigned int computeInstanceSliceCount;
	unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

_Static_assert(sizeof(nvmlGpuInstanceInfo_t) == 24, "nvmlGpuInstanceInfo_t");
_Static_assert(sizeof(nvmlComputeInstanceInfo_t) == 32, "nvmlComputeInstanceInfo_t");
_Static_assert(sizeof(nvmlComputeInstanceProfileInfo_t) == 36, "nvmlComputeInstanceProfileInfo_t");
_Static_assert(sizeof(nvmlComputeInstanceProfileInfo_v2_t) == 136, "nvmlComputeInstanceProfileInfo_v2_t");
_Static_assert(sizeof(nvmlDeviceAttributes_t) == 40, "nvmlDeviceAttributes_t");

#endif
