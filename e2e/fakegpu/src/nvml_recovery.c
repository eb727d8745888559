/* SPDX-License-Identifier: Apache-2.0 */
/* nvml_recovery.c: what the driver says has to be done with a device after an error; see fakegpuctl recovery and remap. */
#include "nvml_fake.h"

#define GPU_RECOVERY_ACTION 230 /* NVML_FI_DEV_GET_GPU_RECOVERY_ACTION */
#define VALUE_UNSIGNED_INT 1

/* nvmlFieldValue_t */
struct field_value {
	unsigned int field, scope;
	long long timestamp, latency_us;
	int type;
	nvmlReturn_t answer;
	union {
		unsigned int number;
		unsigned long long widest;
	} value;
};

DECLARE(nvmlDeviceGetFieldValues, nvmlDevice_t device, int count, struct field_value *values)
{
	CHECK_DEVICE(device, values && count > 0);
	for (int i = 0; i < count; i++) {
		if (values[i].field != GPU_RECOVERY_ACTION) {
			values[i].answer = NVML_ERROR_NOT_SUPPORTED;
			continue;
		}
		values[i].type = VALUE_UNSIGNED_INT;
		values[i].answer = NVML_SUCCESS;
		values[i].value.number = fg_state()->device[device->gpu.minor].recovery;
	}
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetRemappedRows, nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable, unsigned int *pending,
	unsigned int *failed)
{
	CHECK_DEVICE(device, correctable && uncorrectable && pending && failed);
	unsigned remap = fg_state()->device[device->gpu.minor].remap;
	*correctable = 0;
	*uncorrectable = remap == FG_REMAP_PENDING;
	*pending = remap == FG_REMAP_PENDING;
	*failed = remap == FG_REMAP_FAILED;
	return NVML_SUCCESS;
}
