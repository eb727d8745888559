/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mig.c: what happens to partitions: made, destroyed, refused, lost. Nothing here trusts the
 * caller: a start that the table does not list, slices that are taken and an instance in use
 * are refused as the hardware does.
 */
#include "mig.h"

#include <stdio.h>
#include <string.h>

static struct fg_mig_state *state_of(int minor)
{
	return &fg_state()->device[minor].mig;
}

struct fg_gi *fg_gi_by_serial(int minor, uint64_t serial)
{
	for (int i = 0; i < FG_MAX_INSTANCES; i++)
		if (state_of(minor)->gi[i].in_use && state_of(minor)->gi[i].serial == serial)
			return &state_of(minor)->gi[i];
	return NULL;
}

struct fg_gi *fg_gi_by_id(int minor, unsigned id)
{
	for (int i = 0; i < FG_MAX_INSTANCES; i++)
		if (state_of(minor)->gi[i].in_use && state_of(minor)->gi[i].id == id)
			return &state_of(minor)->gi[i];
	return NULL;
}

struct fg_ci *fg_ci_by_serial(struct fg_gi *gi, uint64_t serial)
{
	for (int i = 0; gi && i < FG_MAX_INSTANCES; i++)
		if (gi->ci[i].in_use && gi->ci[i].serial == serial)
			return &gi->ci[i];
	return NULL;
}

int fg_ci_in_use(const struct fg_ci *ci)
{
	fg_reap();
	for (uint64_t i = 0; i < fg_state()->high && i < FG_MAX_PROCESSES; i++)
		if (fg_state()->process[i].in_use && fg_state()->process[i].ci_serial == ci->serial)
			return 1;
	return 0;
}

int fg_gpu_in_use(int minor)
{
	fg_reap();
	for (uint64_t i = 0; i < fg_state()->high && i < FG_MAX_PROCESSES; i++)
		if (fg_state()->process[i].in_use && fg_state()->process[i].open >> minor & 1)
			return 1;
	return 0;
}

int fg_gpu_watched(int minor)
{
	fg_reap();
	for (uint64_t i = 0; i < fg_state()->high && i < FG_MAX_PROCESSES; i++)
		if (fg_state()->process[i].in_use && fg_state()->process[i].watched >> minor & 1)
			return 1;
	return 0;
}

/* Whether the slices, the compute and the media engines that the profile takes at start are free. */
static int fits(const struct fg_gpu *gpu, const struct fg_profile *p, unsigned start)
{
	unsigned compute = p->compute, same = 0;
	for (int i = 0; i < FG_MAX_INSTANCES; i++) {
		const struct fg_gi *g = &state_of(gpu->minor)->gi[i];
		struct fg_profile other;
		if (!g->in_use)
			continue;
		if (start < g->start + g->slices && g->start < start + p->slices)
			return 0;
		compute += g->compute;
		same += g->profile == p->number;
		if (p->media && fg_profile_by_number(gpu, g->profile, &other) == NVML_SUCCESS && other.media)
			return 0;
	}
	return compute <= fg_mig_compute(gpu) && same < p->max;
}

static int legal(const struct fg_profile *p, int start)
{
	for (int i = 0; i < FG_STARTS && p->starts[i] >= 0; i++)
		if (p->starts[i] == start)
			return 1;
	return 0;
}

/* The first start that is free, or -1. */
static int first_free(const struct fg_gpu *gpu, const struct fg_profile *p)
{
	for (int i = 0; i < FG_STARTS && p->starts[i] >= 0; i++)
		if (fits(gpu, p, (unsigned)p->starts[i]))
			return p->starts[i];
	return -1;
}

/*
 * A GPU instance's ID says its place, as in the listings of NVIDIA's user guide: nodes of the
 * binary tree over the memory slices, counted from the root (7g: 0; 4g at 0: 1; 1g at 6: 13).
 */
static unsigned id_of(const struct fg_gpu *gpu, const struct fg_profile *p, unsigned start)
{
	return fg_mig_slices(gpu) / p->slices - 1 + start / p->slices;
}

static nvmlReturn_t place(const struct fg_gpu *gpu, const struct fg_profile *p, int start, struct fg_gi **out)
{
	unsigned current, pending;
	fg_mig_mode(gpu, &current, &pending);
	if (!current)
		return NVML_ERROR_NOT_SUPPORTED;
	if (start >= 0 && !legal(p, start))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (start < 0)
		start = first_free(gpu, p);
	if (start < 0 || !fits(gpu, p, (unsigned)start))
		return FG_NVML_INSUFFICIENT_RESOURCES;
	struct fg_gi *gi = state_of(gpu->minor)->gi;
	while (gi->in_use) /* there are more than instances fit */
		gi++;
	*gi = (struct fg_gi){
		.in_use = 1,
		.id = id_of(gpu, p, (unsigned)start),
		.profile = p->number,
		.start = (uint32_t)start,
		.slices = p->slices,
		.compute = p->compute,
		.serial = ++fg_state()->serials,
	};
	*out = gi;
	return NVML_SUCCESS;
}

nvmlReturn_t fg_gi_create(const struct fg_gpu *gpu, const struct fg_profile *p, int start, struct fg_gi **out)
{
	nvmlReturn_t r = place(gpu, p, start, out);
	if (r == NVML_SUCCESS)
		fg_cap_make(fg_cap(gpu->minor, (*out)->id, -1));
	return r;
}

nvmlReturn_t fg_gi_destroy(const struct fg_gpu *gpu, struct fg_gi *gi)
{
	(void)gpu;
	for (int i = 0; i < FG_MAX_INSTANCES; i++)
		if (gi->ci[i].in_use)
			return FG_NVML_IN_USE;
	memset(gi, 0, sizeof *gi);
	return NVML_SUCCESS;
}

unsigned fg_gi_capacity(const struct fg_gpu *gpu, const struct fg_profile *p)
{
	struct fg_mig_state *m = state_of(gpu->minor);
	const struct fg_mig_state before = *m;
	const uint64_t serials = fg_state()->serials;
	struct fg_gi *made;
	unsigned n = 0;
	while (place(gpu, p, -1, &made) == NVML_SUCCESS)
		n++;
	*m = before;
	fg_state()->serials = serials;
	return n;
}

static int compute_free(const struct fg_gi *gi, unsigned start, unsigned slices)
{
	for (int i = 0; i < FG_MAX_INSTANCES; i++) {
		const struct fg_ci *c = &gi->ci[i];
		if (c->in_use && start < c->start + c->slices && c->start < start + slices)
			return 0;
	}
	return start + slices <= gi->compute;
}

unsigned fg_ci_capacity(const struct fg_gpu *gpu, const struct fg_gi *gi, unsigned slices, int *start)
{
	unsigned n = 0;
	(void)gpu;
	*start = -1;
	for (unsigned at = 0; slices && at + slices <= gi->compute;) {
		if (!compute_free(gi, at, slices)) {
			at++;
			continue;
		}
		if (*start < 0)
			*start = (int)at;
		n++;
		at += slices;
	}
	return n;
}

nvmlReturn_t fg_ci_create(const struct fg_gpu *gpu, struct fg_gi *gi, unsigned slices, int start, struct fg_ci **out)
{
	char seed[128];
	unsigned id = 0;
	int first;
	if (!slices || slices > gi->compute || fg_ci_number(slices) < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	fg_ci_capacity(gpu, gi, slices, &first);
	if (start < 0)
		start = first;
	if (start < 0 || !compute_free(gi, (unsigned)start, slices))
		return FG_NVML_INSUFFICIENT_RESOURCES;
	while (gi->ci[id].in_use) /* not more than 7 slices */
		id++;
	struct fg_ci *ci = &gi->ci[id];
	*ci = (struct fg_ci){.in_use = 1, .id = id, .start = (uint32_t)start, .slices = slices, .serial = ++fg_state()->serials};
	snprintf(seed, sizeof seed, "%llu/%s", (unsigned long long)ci->serial, gpu->uuid);
	fg_uuid(ci->uuid, "MIG-", seed);
	fg_cap_make(fg_cap(gpu->minor, gi->id, (int)id));
	*out = ci;
	return NVML_SUCCESS;
}

nvmlReturn_t fg_ci_destroy(const struct fg_gpu *gpu, struct fg_gi *gi, struct fg_ci *ci)
{
	(void)gpu, (void)gi;
	if (fg_ci_in_use(ci))
		return FG_NVML_IN_USE;
	memset(ci, 0, sizeof *ci);
	return NVML_SUCCESS;
}

void fg_mig_as_gpu(const struct fg_gpu *parent, const struct fg_gi *gi, const struct fg_ci *ci, struct fg_gpu *out)
{
	struct fg_profile p;
	*out = *parent;
	out->gi_serial = gi->serial;
	out->ci_serial = ci->serial;
	out->gi = gi->id;
	out->ci = ci->id;
	memcpy(out->parent, parent->uuid, sizeof out->parent);
	memcpy(out->uuid, ci->uuid, sizeof out->uuid);
	if (fg_profile_by_number(parent, gi->profile, &p) != NVML_SUCCESS)
		return; /* the topology was changed under it */
	char part[8] = "";
	if (ci->slices != gi->compute)
		snprintf(part, sizeof part, "%uc.", ci->slices);
	snprintf(out->model, sizeof out->model, "%.60s MIG %.7s%.23s", parent->model, part, p.name);
	out->memory = (uint64_t)p.mib << 20;
	out->sms = (int)(p.sms * ci->slices / gi->compute);
}

int fg_mig_visible(const struct fg_gpu *parent, struct fg_gpu *out, int room)
{
	int n = 0;
	unsigned current, pending;
	fg_mig_mode(parent, &current, &pending);
	for (unsigned id = 0; current && id < 15; id++) {
		const struct fg_gi *gi = fg_gi_by_id(parent->minor, id);
		if (!gi || !fg_cap_present(fg_cap(parent->minor, id, -1)))
			continue;
		for (int c = 0; c < FG_MAX_INSTANCES && n < room; c++)
			if (gi->ci[c].in_use && fg_cap_present(fg_cap(parent->minor, id, c)))
				fg_mig_as_gpu(parent, gi, &gi->ci[c], &out[n++]);
	}
	return n;
}
