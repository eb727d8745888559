/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mig.h: partitions of the fake machine's devices: what may be made where, and what is.
 * Answers are NVML's codes. Everything that reads or changes partitions needs fg_lock.
 */
#ifndef FAKEGPU_MIG_H
#define FAKEGPU_MIG_H

#include "nvml_abi.h"
#include "nvml_mig_abi.h"
#include "state.h"

#define FG_STARTS 8
#define FG_SEEN_INSTANCES 64 /* more than a process can be shown */

/* What an instance of one profile is on one device. */
struct fg_profile {
	unsigned number; /* NVML_GPU_INSTANCE_PROFILE_* */
	unsigned id;     /* what nvidia-smi and the creating calls name it by */
	unsigned compute, slices, max; /* compute slices, memory slices, instances at most */
	int media;       /* has the media engines, of which a device has one set */
	int starts[FG_STARTS]; /* legal first memory slices; ends with -1 */
	unsigned mib, sms;
	char name[24]; /* "3g.40gb" */
};

/* The profile by NVML's number, by id, by name. NVML_ERROR_NOT_SUPPORTED when the device has none such. */
nvmlReturn_t fg_profile_by_number(const struct fg_gpu *gpu, unsigned number, struct fg_profile *out);
nvmlReturn_t fg_profile_by_id(const struct fg_gpu *gpu, unsigned id, struct fg_profile *out);
nvmlReturn_t fg_profile_by_name(const struct fg_gpu *gpu, const char *name, struct fg_profile *out);
/* Memory slices and compute slices of a device; 0 for a device without MIG. */
unsigned fg_mig_slices(const struct fg_gpu *gpu);
unsigned fg_mig_compute(const struct fg_gpu *gpu);
/* NVML's number of the compute instance profile of so many slices, or -1. */
int fg_ci_number(unsigned slices);
/* Slices of a compute instance profile by number; 0 when there is none such. */
unsigned fg_ci_slices(unsigned number);

/* The mode in force, and the one after the next reset. */
void fg_mig_mode(const struct fg_gpu *gpu, unsigned *current, unsigned *pending);
/*
 * Asks for a mode. Hopper and later change at once; Ampere wants a reset first: activation is
 * then NVML_ERROR_RESET_REQUIRED. It is NVML_ERROR_IN_USE while a process has the device open or
 * an instance exists. Where activation fails the mode stays pending.
 */
nvmlReturn_t fg_mig_set_mode(const struct fg_gpu *gpu, unsigned on, nvmlReturn_t *activation);

/* Makes an instance at a start, or at the first that is free when start is negative. */
nvmlReturn_t fg_gi_create(const struct fg_gpu *gpu, const struct fg_profile *profile, int start, struct fg_gi **out);
nvmlReturn_t fg_gi_destroy(const struct fg_gpu *gpu, struct fg_gi *gi);
nvmlReturn_t fg_ci_create(const struct fg_gpu *gpu, struct fg_gi *gi, unsigned slices, int start, struct fg_ci **out);
nvmlReturn_t fg_ci_destroy(const struct fg_gpu *gpu, struct fg_gi *gi, struct fg_ci *ci);
/* How many more instances of a profile fit now. */
unsigned fg_gi_capacity(const struct fg_gpu *gpu, const struct fg_profile *profile);
/* How many more compute instances of so many slices fit; the first free start, or -1, in *start. */
unsigned fg_ci_capacity(const struct fg_gpu *gpu, const struct fg_gi *gi, unsigned slices, int *start);

/* An instance of a device by serial number, which is never used twice; NULL when it is gone. */
struct fg_gi *fg_gi_by_serial(int minor, uint64_t serial);
struct fg_ci *fg_ci_by_serial(struct fg_gi *gi, uint64_t serial);
/* Place in the device's list of instances by ID (0 to 14); NULL when there is none. */
struct fg_gi *fg_gi_by_id(int minor, unsigned id);

/* Whether a living process uses the instance, or has the device open. */
int fg_ci_in_use(const struct fg_ci *ci);
int fg_gpu_in_use(int minor);
/* Whether a process has the device in an event set: then its mode cannot be switched. Needs the lock. */
int fg_gpu_watched(int minor);

/* The pair as a device of its own: its memory, SMs, UUID and name. */
void fg_mig_as_gpu(const struct fg_gpu *parent, const struct fg_gi *gi, const struct fg_ci *ci, struct fg_gpu *out);
/* Instances of a device that this process may see, by GI, then CI; how many. */
int fg_mig_visible(const struct fg_gpu *parent, struct fg_gpu *out, int room);

/* A reset applies the pending mode and loses the instances. NVML_ERROR_IN_USE while a process has the device open. */
nvmlReturn_t fg_mig_reset(const struct fg_gpu *gpu);
/* What is left after the machine was off: Ampere keeps its mode (pending becomes current), later ones lose it. */
void fg_mig_reboot(const struct fg_gpu *gpu);

/*
 * Capability nodes. The numbers are those of the real driver's static table
 * /proc/driver/nvidia-caps/mig-minors, which is written to $FAKEGPU_DIR/mig-minors.
 */
#define FG_CAP_CONFIG 1
#define FG_CAP_MONITOR 2
int fg_cap(int minor, unsigned gi, int ci); /* of the GPU instance itself when ci is negative */
int fg_cap_present(int cap);
/* Makes the node below $FAKEGPU_DEV on a host: where there was no nvidia-caps yet, or one with the node to configure. */
void fg_cap_make(int cap);
int fg_caps_write(const char *dir);

/* A failure or a delay that fakegpuctl or FAKEGPU_FAIL has ordered for this call. Must not hold fg_lock. */
nvmlReturn_t fg_fault(const char *function);

#endif
