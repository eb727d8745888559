/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml_absent.c: functions that this fake has not got and answers NOT_SUPPORTED for.
 * A caller that binds lazily would die on a missing symbol instead of being told.
 */
#include "nvml_fake.h"

#define ABSENT(name)                   \
	FG_EXPORT nvmlReturn_t name(void); \
	FG_EXPORT nvmlReturn_t name(void)  \
	{                              \
		return NVML_ERROR_NOT_SUPPORTED; \
	}

ABSENT(nvmlDeviceGetAddressingMode)
ABSENT(nvmlDeviceGetGpuFabricInfo)
ABSENT(nvmlDeviceGetGpuFabricInfoV)
ABSENT(nvmlDeviceGetPersistenceMode)
ABSENT(nvmlDeviceGetBAR1MemoryInfo)
ABSENT(nvmlDeviceGetTemperature)
ABSENT(nvmlDeviceGetPowerUsage)
ABSENT(nvmlDeviceGetPowerManagementLimit)
ABSENT(nvmlDeviceGetEnforcedPowerLimit)
ABSENT(nvmlDeviceGetClockInfo)
ABSENT(nvmlDeviceGetMaxClockInfo)
ABSENT(nvmlDeviceGetEccMode)
ABSENT(nvmlDeviceGetTotalEccErrors)
ABSENT(nvmlDeviceGetMemoryErrorCounter)
ABSENT(nvmlDeviceGetRetiredPages)
ABSENT(nvmlDeviceGetCpuAffinity)
ABSENT(nvmlDeviceGetNvLinkVersion)
ABSENT(nvmlDeviceGetNvLinkCapability)
ABSENT(nvmlDeviceGetNvLinkRemoteDeviceType)
ABSENT(nvmlDeviceGetP2PStatus)
ABSENT(nvmlDeviceGetVbiosVersion)
ABSENT(nvmlDeviceGetMultiGpuBoard)
ABSENT(nvmlDeviceGetBoardId)
ABSENT(nvmlDeviceGetBoardPartNumber)
ABSENT(nvmlDeviceGetInforomVersion)
ABSENT(nvmlDeviceGetCurrPcieLinkGeneration)
ABSENT(nvmlDeviceGetMaxPcieLinkGeneration)
ABSENT(nvmlDeviceGetCurrPcieLinkWidth)
ABSENT(nvmlDeviceGetMaxPcieLinkWidth)
ABSENT(nvmlDeviceGetEncoderUtilization)
ABSENT(nvmlDeviceGetDecoderUtilization)
ABSENT(nvmlDeviceGetNumGpuCores)
ABSENT(nvmlDeviceGetGpuOperationMode)
ABSENT(nvmlDeviceGetDisplayActive)
ABSENT(nvmlDeviceGetDisplayMode)
ABSENT(nvmlDeviceGetPerformanceState)
ABSENT(nvmlDeviceGetFanSpeed)
ABSENT(nvmlDeviceGetConfComputeMemSizeInfo)
ABSENT(nvmlSystemGetConfComputeState)
ABSENT(nvmlSystemGetTopologyGpuSet)
