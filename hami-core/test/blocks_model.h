/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks_model.h: what HAMi-core's limiter makes of a workload, by simulation. Each tenant has one
 * stream, worked off in order; tenants with work take turns of 2 ms, as a GPU's time slices are.
 * Time runs in steps of 1 us.
 */
#ifndef BLOCKS_MODEL_H
#define BLOCKS_MODEL_H

#include <stdint.h>

struct workload {
	uint64_t blocks;  /* of one kernel */
	uint64_t cost_ns; /* of one kernel */
	int sync_every;   /* launches; 0 = never */
};

struct blocks_tenant {
	struct workload work;
	unsigned percent;
};

/*
 * Runs up to 4 tenants for `seconds`; share[i] is the part of the device's time that tenant i got,
 * in percent, after its first second.
 */
void blocks_run(const struct blocks_tenant *tenants, int count, int seconds, double *share);

#endif
