/* SPDX-License-Identifier: Apache-2.0 */
/* nvml_fake.h: what the parts of the fake libnvidia-ml.so.1 share. */
#ifndef FAKEGPU_NVML_FAKE_H
#define FAKEGPU_NVML_FAKE_H

#include <pthread.h>
#include <stddef.h>

#include "nvml_abi.h"
#include "state.h"

#define FG_EXPORT __attribute__((visibility("default")))

/* A handle stays valid while the library is loaded, as in the real one. */
struct nvmlDevice_st {
	struct fg_gpu gpu;
	unsigned index; /* among the visible ones */
};

struct fg_nvml {
	pthread_mutex_t mutex;
	int references; /* nvmlInit minus nvmlShutdown */
	struct fg_topology topology;
	unsigned count;
	struct nvmlDevice_st device[FG_MAX_DEVICES];
};
extern struct fg_nvml nvml;

int fg_nvml_ready(void);
/* NVML_SUCCESS, or why a call on this handle cannot go on (also when the device is lost). */
nvmlReturn_t fg_nvml_check(nvmlDevice_t device);
/* The same without asking whether the device is lost. */
nvmlReturn_t fg_nvml_known(nvmlDevice_t device);
nvmlReturn_t fg_nvml_text(char *out, unsigned length, const char *text);

/* Returns from the caller unless the handle is good and the argument given. */
#define CHECK_DEVICE(device, argument)                                \
	do {                                                          \
		nvmlReturn_t check_result = fg_nvml_check(device);    \
		if (check_result != NVML_SUCCESS)                     \
			return check_result;                          \
		if (!(argument))                                      \
			return NVML_ERROR_INVALID_ARGUMENT;           \
	} while (0)

#endif
