/* SPDX-License-Identifier: Apache-2.0 */
/* mig_mode.c: how a device comes into MIG mode and out of it, and what resets and reboots leave. */
#include "mig.h"

#include <string.h>

static struct fg_mig_state *state_of(int minor)
{
	return &fg_state()->device[minor].mig;
}

void fg_mig_mode(const struct fg_gpu *gpu, unsigned *current, unsigned *pending)
{
	const struct fg_mig_state *m = state_of(gpu->minor);
	*current = m->known ? m->current : gpu->mig == FG_MIG_ENABLED;
	*pending = m->known ? m->pending : gpu->mig == FG_MIG_ENABLED;
}

static void set_mode(const struct fg_gpu *gpu, unsigned current, unsigned pending)
{
	struct fg_mig_state *m = state_of(gpu->minor);
	m->known = 1;
	m->current = current;
	m->pending = pending;
}

static int has_instances(int minor)
{
	for (int i = 0; i < FG_MAX_INSTANCES; i++)
		if (state_of(minor)->gi[i].in_use)
			return 1;
	return 0;
}

nvmlReturn_t fg_mig_set_mode(const struct fg_gpu *gpu, unsigned on, nvmlReturn_t *activation)
{
	unsigned current, pending;
	if (!fg_mig_slices(gpu))
		return NVML_ERROR_NOT_SUPPORTED;
	fg_mig_mode(gpu, &current, &pending);
	*activation = NVML_SUCCESS;
	if (current == on)
		;
	else if (fg_gpu_in_use(gpu->minor) || fg_gpu_watched(gpu->minor) || has_instances(gpu->minor))
		*activation = FG_NVML_IN_USE;
	else if (gpu->cc_major == 8)
		*activation = FG_NVML_RESET_REQUIRED;
	set_mode(gpu, *activation == NVML_SUCCESS ? on : current, on);
	return NVML_SUCCESS;
}

/* What a reset and a reboot do: instances are lost, errors are recovered from, rows remapped. */
static void start_anew(int minor)
{
	struct fg_device_state *d = &fg_state()->device[minor];
	memset(state_of(minor)->gi, 0, sizeof state_of(minor)->gi);
	d->recovery = 0;
	if (d->remap == FG_REMAP_PENDING)
		d->remap = FG_REMAP_NONE;
}

nvmlReturn_t fg_mig_reset(const struct fg_gpu *gpu)
{
	unsigned current, pending;
	if (fg_gpu_in_use(gpu->minor))
		return FG_NVML_IN_USE;
	fg_mig_mode(gpu, &current, &pending);
	start_anew(gpu->minor);
	set_mode(gpu, pending, pending);
	return NVML_SUCCESS;
}

void fg_mig_reboot(const struct fg_gpu *gpu)
{
	unsigned current, pending;
	fg_mig_mode(gpu, &current, &pending);
	start_anew(gpu->minor);
	int kept = gpu->cc_major == 8 && pending;
	set_mode(gpu, (unsigned)kept, (unsigned)kept);
}
