/* SPDX-License-Identifier: Apache-2.0 */
/* region_suspend.c: processes whose memory is in a checkpoint. Several slots may be one process. */
#include "shm/region.h"

#include "model/limit.h"
#include "shm/slots.h"
#include "shm/word.h"

/* Marks the slots of a process, and counts all again (needs the lock). */
static void mark_process(int pid, uint64_t suspended)
{
	for (int i = 0, high = slots_high_water(); i < high; i++) {
		struct vgpu_slot *s = &membership.map->ext.slot[i];
		if (slots_is_of(i, pid))
			word_set(&s->suspended, suspended);
	}
	slots_recount();
}

void region_suspend(int pid)
{
	if (pid <= 0 || region_lock())
		return;
	mark_process(pid, 1);
	region_unlock();
}

/* Adds what the suspended slots of a process have; whether it has any (needs the lock). */
static int sum_suspended(int pid, uint64_t *bytes)
{
	int any = 0;
	for (int i = 0, high = slots_high_water(); i < high; i++) {
		const struct vgpu_slot *s = &membership.map->ext.slot[i];
		if (!slots_is_of(i, pid) || !word_get(&s->suspended))
			continue;
		any = 1;
		for (int d = 0; d < HAMI_DEVICES; d++) {
			uint64_t used = word_get(&s->used[d]);
			bytes[d] += used < LIMIT_MOST ? used : LIMIT_MOST;
		}
	}
	return any;
}

static int is_admitted(const uint64_t *bytes, const uint64_t *limits)
{
	for (int d = 0; d < HAMI_DEVICES; d++) {
		uint64_t used = word_get(&membership.map->ext.reserved[d]);
		if (bytes[d] && !limit_admits(used, bytes[d], limits[d]))
			return 0;
	}
	return 1;
}

enum region_resumption region_resume(int pid, const uint64_t *limits)
{
	uint64_t bytes[HAMI_DEVICES] = {0};
	enum region_resumption how = REGION_NOT_SUSPENDED;
	if (pid <= 0 || region_lock())
		return how;
	slots_reap();
	slots_recount();
	if (sum_suspended(pid, bytes))
		how = is_admitted(bytes, limits) ? REGION_RESUMED : REGION_NO_ROOM;
	if (how == REGION_RESUMED)
		mark_process(pid, 0);
	region_unlock();
	return how;
}
