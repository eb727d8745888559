/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region_view.c: what the region shows: the container's processes, and to monitors the names of
 * devices.
 */
#include "shm/region.h"

#include <stdio.h>

#include "platform/prim.h"
#include "shm/slots.h"
#include "shm/word.h"

int region_has_process(int pid)
{
	int found = 0;
	if (pid <= 0 || region_lock())
		return 0;
	for (int i = 0, high = slots_high_water(); i < high && !found; i++)
		found = slots_is_of(i, pid);
	region_unlock();
	return found;
}

/*
 * A process may have several slots: one for each copy of this library in it. 1 for one that was
 * not there yet.
 */
static unsigned merge_process(struct region_process *out, unsigned n, unsigned room,
			      struct region_process found)
{
	for (unsigned i = 0; i < n && i < room; i++)
		if (out[i].pid == found.pid)
			return out[i].bytes += found.bytes, 0;
	if (n < room)
		out[n] = found;
	return 1;
}

unsigned region_processes(int device, struct region_process *out, unsigned room)
{
	unsigned n = 0;
	if (region_lock())
		return 0;
	slots_reap();
	for (int i = 0, high = slots_high_water(); i < high; i++) {
		const struct vgpu_slot *s = &membership.map->ext.slot[i];
		struct region_process p = {(int)word_get32(&s->pid), word_get(&s->used[device])};
		uint64_t context = word_get(&membership.map->hami.procs[i].used[device].context);
		/* NVML, too, names no process of another namespace */
		if (slots_counts(i) && p.pid > 0 && slots_is_of(i, p.pid) && (p.bytes || context))
			n += merge_process(out, n, room, p);
	}
	region_unlock();
	return n;
}

int region_has_copy(int device)
{
	int found = 0;
	if (region_lock())
		return 0;
	for (int i = 0, high = slots_high_water(); i < high && !found; i++) {
		const struct vgpu_slot *s = &membership.map->ext.slot[i];
		found = slots_is_of(i, prim_pid()) && word_get(&s->used[device]);
	}
	region_unlock();
	return found;
}

void region_name_device(int device, const char *uuid)
{
	if (region_lock())
		return;
	struct hami_region *h = &membership.map->hami;
	snprintf(h->uuid[device], sizeof h->uuid[device], "%s", uuid);
	if (h->device_num <= (uint64_t)device)
		h->device_num = (uint64_t)device + 1;
	region_unlock();
}

int region_check(void)
{
	if (region_lock())
		return -1;
	const struct vgpu_extension *x = &membership.map->ext;
	int bad = 0;
	for (int d = 0; d < HAMI_DEVICES; d++) {
		uint64_t sum = 0;
		for (int i = 0; i < HAMI_PROCESSES; i++) {
			sum += slots_counts(i) ? x->slot[i].used[d] : 0;
			bad |= x->slot[i].used[d] != membership.map->hami.procs[i].used[d].total;
			bad |= slots_is_live(i) && i >= membership.map->hami.proc_num;
		}
		bad |= sum != x->reserved[d];
	}
	region_unlock();
	return bad ? -1 : 0;
}
