/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pace_model.h: a device with tenants on a virtual clock, to see what a limiter makes of a
 * workload. Each tenant has one stream, worked off in order; tenants with work take turns
 * of 2 ms, as a GPU's time slices are. Time runs in steps of 1 us.
 */
#ifndef PACE_MODEL_H
#define PACE_MODEL_H

#include <stdint.h>

#include "pace.h"

struct workload {
	const char *name;
	uint64_t blocks;  /* of one kernel */
	uint64_t cost_ns; /* of one kernel */
	int sync_every;   /* launches; 0 = never */
};

enum limiter { LIMITER_TIME, LIMITER_BLOCKS };

struct tenant {
	struct workload work;
	unsigned percent;
	uint64_t starts_ns;
};

/* Runs tenants for `seconds`; share[i] is the part of the device's time that tenant i got, in percent, after its first second. */
void model_run(enum limiter limiter, const struct tenant *tenants, int count, int seconds, double *share);

#endif
