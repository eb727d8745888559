/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.h: whether and how this process is limited. The limits are read when the library is
 * loaded and kept for good, also by the child of a fork; everything else starts at the first call
 * of a hook, and anew in such a child. Thread-safe; may call the driver and the loader, so no
 * caller holds a lock.
 */
#ifndef SETTINGS_H
#define SETTINGS_H

#include "cuda_abi.h"
#include "model/limits.h"

enum gate {
	GATE_OPEN,    /* nothing is limited: call the driver */
	GATE_LIMITED, /* ask the region */
	GATE_CLOSED   /* the limits cannot be read or held: refuse memory */
};

/*
 * Starts on first use. Cheap afterwards: one load. While a passing state of the machine keeps it
 * from starting (no free descriptor, a lease on the limits file) it is CLOSED and tries again
 * each time. While the region cannot be made it is CLOSED and tries again, at most ten times a
 * second and for at most a tenth of the time.
 */
enum gate settings_gate(void);

/*
 * Whether libraries may not be loaded past us: when anything is limited and the file does not
 * say "deepbind keep". Starts nothing.
 */
int settings_guards_loading(void);

/*
 * Index in the limits of a CUDA device; -1: the limits do not name it; -2: the driver does not
 * know it (and will say so). pre: gate is LIMITED.
 */
int settings_device(CUdevice ordinal);
/* The same by UUID text, "GPU-...". */
int settings_device_by_uuid(const char *uuid);
/* The same for the calling thread's current device; -2 when there is none. */
int settings_current_device(void);

/* Memory limit in bytes of an index, 0 = none. */
uint64_t settings_memory_limit(int index);

/* Percent of the device's time an index may use; 100 = all. And how the share is enforced. */
unsigned settings_cores(int index);
enum limits_policy settings_policy(void);
int settings_priority(void);
/* Where the neighbours' files are, see borrow.h; empty: nowhere. */
const char *settings_borrow_path(void);

/* UUID text of an index; empty when it is not known. */
const char *settings_uuid(int index);

/* Whether memory that the card has not got is taken from the host. */
int settings_oversubscribes(void);

/* Whether contexts and code count against the memory limit. */
int settings_charges_overhead(void);

#endif
