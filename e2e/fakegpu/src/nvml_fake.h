/* SPDX-License-Identifier: Apache-2.0 */
/* nvml_fake.h: what the parts of the fake libnvidia-ml.so.1 share. */
#ifndef FAKEGPU_NVML_FAKE_H
#define FAKEGPU_NVML_FAKE_H

#include <pthread.h>
#include <stddef.h>

#include "mig.h"

#define FG_EXPORT __attribute__((visibility("default")))

/* A handle stays valid while the library is loaded, as in the real one. */
struct nvmlDevice_st {
	struct fg_gpu gpu;
	unsigned index; /* among the visible ones */
	struct nvmlDevice_st *parent, *next; /* of a MIG device: see nvml_handle.c */
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
/* The same for a device or a MIG device, which must still exist. */
nvmlReturn_t fg_nvml_any(nvmlDevice_t device);
nvmlReturn_t fg_nvml_text(char *out, unsigned length, const char *text);

#define DECLARE(name, ...)                        \
	FG_EXPORT nvmlReturn_t name(__VA_ARGS__); \
	FG_EXPORT nvmlReturn_t name(__VA_ARGS__)

/* Returns from the caller unless the handle is good, the argument given and no failure ordered. */
#define CHECK_DEVICE(device, argument) CHECK_HANDLE(fg_nvml_check(device), argument)
#define CHECK_ANY(device, argument) CHECK_HANDLE(fg_nvml_any(device), argument)
#define CHECK_HANDLE(check, argument)                                 \
	do {                                                          \
		nvmlReturn_t check_result = check;                    \
		if (check_result == NVML_SUCCESS)                     \
			check_result = fg_fault(__func__);            \
		if (check_result != NVML_SUCCESS)                     \
			return check_result;                          \
		if (!(argument))                                      \
			return NVML_ERROR_INVALID_ARGUMENT;           \
	} while (0)

/* Handles of instances stay valid as memory; they are good while their instance exists. */
struct nvmlGpuInstance_st {
	nvmlDevice_t device;
	uint64_t serial;
	struct nvmlGpuInstance_st *next;
};
struct nvmlComputeInstance_st {
	nvmlGpuInstance_t gi;
	uint64_t serial;
	struct nvmlComputeInstance_st *next;
};

/* The one handle of an instance; NULL without memory. */
nvmlGpuInstance_t fg_gi_handle(nvmlDevice_t device, const struct fg_gi *gi);
nvmlComputeInstance_t fg_ci_handle(nvmlGpuInstance_t gi, const struct fg_ci *ci);
nvmlDevice_t fg_mig_handle(nvmlDevice_t parent, const struct fg_gpu *mig);
/* Its place among the MIG devices of its parent, as the toolkit asks for. */
unsigned fg_mig_index(nvmlDevice_t mig);
nvmlReturn_t fg_mig_handle_by_uuid(const char *uuid, nvmlDevice_t *out);

/*
 * What a handle stands for. They take fg_lock and keep it when the answer is NVML_SUCCESS, so
 * that the instance stays until the caller's fg_unlock.
 */
nvmlReturn_t fg_gi_lock(nvmlGpuInstance_t handle, struct fg_gi **gi);
nvmlReturn_t fg_ci_lock(nvmlComputeInstance_t handle, struct fg_gi **gi, struct fg_ci **ci);

/* Whether the device is a vGPU: much of what concerns the card is up to the machine's host then. */
int fg_is_vgpu(const struct fg_gpu *gpu);

/* Makes the capability nodes of the host, as nvidia-modprobe does; nothing in containers. */
void fg_nvml_make_nodes(void);

/* Whether this process may make and destroy instances: it needs the capability node. */
nvmlReturn_t fg_nvml_may_configure(void);

#endif
