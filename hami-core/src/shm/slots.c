/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/slots.h"

#include <string.h>

#include "model/limit.h"
#include "platform/prim.h"
#include "shm/word.h"

struct membership membership = {.fd = -1, .slot = -1};

int slots_high_water(void)
{
	int32_t n = (int32_t)word_get32(&membership.map->hami.proc_num);
	return n > membership.slot && n >= 0 && n <= HAMI_PROCESSES ? n : HAMI_PROCESSES;
}

int slots_is_live(int slot)
{
	return word_get32(&membership.map->ext.slot[slot].state) == SLOT_LIVE;
}

int slots_counts(int slot)
{
	return slots_is_live(slot) && !word_get(&membership.map->ext.slot[slot].suspended);
}

int slots_is_of(int slot, int pid)
{
	uint64_t identity = word_get(&membership.map->hami.procs[slot].identity);
	return slots_is_live(slot) && (int)word_get32(&membership.map->ext.slot[slot].pid) == pid &&
	       prim_pid_space(identity) == prim_pid_space(membership.identity);
}

int slots_own_is_suspended(void)
{
	return word_get(&membership.map->ext.slot[membership.slot].suspended) != 0;
}

int slots_own_is_visible(void)
{
	int32_t n = (int32_t)word_get32(&membership.map->hami.proc_num);
	return slots_is_live(membership.slot) && n > membership.slot;
}

/* What all slots say of a device. */
static uint64_t sum_of(int device, int high)
{
	uint64_t sum = 0;
	for (int i = 0; i < high; i++)
		if (slots_counts(i)) {
			uint64_t used = word_get(&membership.map->ext.slot[i].used[device]);
			sum += used < LIMIT_MOST ? used : LIMIT_MOST;
		}
	return sum;
}

void slots_recount(void)
{
	for (int d = 0, high = slots_high_water(); d < HAMI_DEVICES; d++) {
		uint64_t *sum = &membership.map->ext.reserved[d];
		uint64_t before = word_get(sum), now = sum_of(d, high);
		/* not where it has changed meanwhile: we were stopped, and another has the lock */
		if (before != now)
			__atomic_compare_exchange_n(sum, &before, now, 0, __ATOMIC_ACQ_REL,
						    __ATOMIC_RELAXED);
	}
}

void slots_write_used(int device, uint64_t bytes)
{
	struct hami_memory *mirror = &membership.map->hami.procs[membership.slot].used[device];
	uint64_t counted = membership.counted[device];
	word_set(&membership.map->ext.slot[membership.slot].used[device], bytes);
	word_set(&mirror->total, bytes);
	word_set(&mirror->context, membership.overhead[REGION_CONTEXT][device]);
	word_set(&mirror->module, membership.overhead[REGION_MODULE][device]);
	word_set(&mirror->data, bytes - (counted < bytes ? counted : bytes));
}

/* proc_num as it has to be where this process is in its slot. */
static void repair_slot_count(void)
{
	int32_t n = (int32_t)word_get32(&membership.map->hami.proc_num);
	if (n > membership.slot && n <= HAMI_PROCESSES)
		return;
	for (n = HAMI_PROCESSES; n > membership.slot + 1 && !slots_is_live(n - 1);)
		n--;
	word_set32(&membership.map->hami.proc_num, (uint32_t)n);
}

void slots_write_own(void)
{
	struct vgpu_slot *s = &membership.map->ext.slot[membership.slot];
	struct hami_process *mirror = &membership.map->hami.procs[membership.slot];
	word_set32(&s->pid, (uint32_t)prim_pid());
	word_set(&mirror->identity, membership.identity);
	word_set32(&mirror->pid, (uint32_t)prim_pid());
	for (int d = 0; d < HAMI_DEVICES; d++)
		slots_write_used(d, membership.mine[d]);
	for (int k = 0; k < VGPU_SHOWN; k++)
		for (int d = 0; d < HAMI_DEVICES; d++)
			word_set(&s->shown[k][d], membership.shown[k][d]);
	word_set32(&s->state, SLOT_LIVE);
	word_set32(&mirror->status, 1);
	repair_slot_count();
}

/* Clears a slot and what monitors see of it. */
static void clear_slot(int i)
{
	struct vgpu_slot *s = &membership.map->ext.slot[i];
	word_set32(&s->state, SLOT_FREE);
	memset(s, 0, sizeof *s);
	memset(&membership.map->hami.procs[i], 0, sizeof membership.map->hami.procs[i]);
}

int slots_fd_is_ours(void)
{
	unsigned long long now[2];
	return membership.fd >= 0 && prim_identity(membership.fd, now) == 0 &&
	       now[0] == membership.file[0] && now[1] == membership.file[1];
}

/*
 * A program may close descriptors it does not know, ours among them (daemons close all),
 * and the number may stand for another file by now. The lock on our slot stays: it has no
 * descriptor.
 */
static void reopen_if_closed(void)
{
	if (membership.fd < 0 || slots_fd_is_ours())
		return;
	membership.fd = prim_open_shared(membership.path);
	if (membership.fd >= 0 && !slots_fd_is_ours()) {
		prim_close(membership.fd);
		membership.fd = -1; /* the file is gone: nobody can be probed, nor can we be */
	}
}

/* Whether another slot is in use: a container of one process need not ask the kernel. */
static int has_others(void)
{
	for (int i = 0, high = slots_high_water(); i < high; i++)
		if (i != membership.slot && slots_is_live(i))
			return 1;
	return 0;
}

/*
 * Whether the owner of a slot, not this process, has died (needs membership.fd, as it is now). The
 * usual owner lives and is found with one system call.
 */
static int is_dead(int slot)
{
	const struct vgpu_region *m = membership.map;
	if (membership.fd >= 0 && prim_is_owned(membership.fd, VGPU_OWNER_LOCK + slot))
		return 0;
	if (membership.fd >= 0 && prim_is_locked(membership.fd, VGPU_SLOT_LOCK + slot, 1) == 0)
		return 1;
	return prim_process_is_dead((int)word_get32(&m->ext.slot[slot].pid),
				    word_get(&m->hami.procs[slot].identity));
}

void slots_reap(void)
{
	int freed = 0;
	if (!has_others())
		return;
	reopen_if_closed();
	for (int i = 0, high = slots_high_water(); i < high; i++) {
		if (i == membership.slot || !slots_is_live(i) || !is_dead(i))
			continue;
		clear_slot(i);
		freed = 1;
	}
	if (freed)
		slots_recount();
}

int slots_may_hold(uint32_t owner)
{
	if (owner == membership.me || owner > VGPU_NEWCOMER)
		return 0; /* no thread of ours is in: it would have the process's mutex */
	reopen_if_closed();
	if (owner != VGPU_NEWCOMER)
		return !is_dead((int)owner - 1);
	return membership.fd < 0 || prim_is_locked(membership.fd, VGPU_FORMAT_LOCK, 1) != 0;
}

/*
 * The region's file, opened once more for the lock on a slot. What membership.fd has locked,
 * children keep, and processes of another container could not tell that their parent has died.
 * membership.fd itself where the file cannot be opened again.
 */
static int open_for_slot(void)
{
	unsigned long long file[2];
	int fd = membership.fd >= 0 ? prim_open_shared(membership.path) : -1;
	if (fd >= 0 && prim_identity(fd, file) == 0 && file[0] == membership.file[0] &&
	    file[1] == membership.file[1])
		return fd;
	if (fd >= 0)
		prim_close(fd);
	return membership.fd;
}

/* The first slot that no living process has, locked by fd; -1: none. */
static int lock_free_slot(int fd)
{
	/* slots that say they are free come first: no lock of the others' is asked for then */
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < HAMI_PROCESSES; i++)
			if ((round || !slots_is_live(i)) &&
			    (fd < 0 || prim_lock_try(fd, VGPU_SLOT_LOCK + i) == 0))
				return i;
	return -1;
}

int slots_claim(void)
{
	int fd = open_for_slot(), slot = lock_free_slot(fd);
	if (fd != membership.fd && (slot < 0 || prim_hold_for_life(fd))) {
		prim_close(fd);
		slot = slot < 0 ? -1 : lock_free_slot(membership.fd);
	}
	if (slot < 0)
		return -1;
	clear_slot(slot);
	membership.slot = slot;
	membership.identity = prim_process_identity();
	if (membership.fd >= 0)
		prim_own(membership.fd, VGPU_OWNER_LOCK + slot);
	slots_write_own();
	return slot;
}
