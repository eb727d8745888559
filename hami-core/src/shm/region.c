/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "shm/region.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "model/limit.h"
#include "platform/mutex.h"
#include "platform/prim.h"
#include "shm/region_file.h"
#include "shm/lock.h"
#include "shm/slots.h"
#include "shm/word.h"

#define REFRESH 256 /* calls after which all is put in order, also what this process does not use */
#define DECISIONS 8 /* as often it is decided again when somebody has taken the lock meanwhile */

/* In front of the region's lock, whose holder is a process. */
static struct mutex mutex;
static unsigned calls;

/* Puts in order what this process can (needs the lock). */
__attribute__((cold)) static void repair_region(void)
{
	/* before counting: who changes a slot now sets it again */
	__atomic_store_n(&membership.map->ext.changed, 0, __ATOMIC_SEQ_CST);
	region_file_repair_header(membership.map);
	slots_write_own();
	slots_recount();
}

int region_lock(void)
{
	mutex_take(&mutex);
	if (!membership.map) {
		mutex_give(&mutex);
		return -1;
	}
	struct vgpu_extension *x = &membership.map->ext;
	int wrong = lock_take(&x->lock, membership.me, slots_may_hold) != LOCK_CLEAN;
	wrong |= ++calls % REFRESH == 0 || !slots_own_is_visible() || word_get32(&x->changed);
	if (__builtin_expect(wrong, 0))
		repair_region();
	return 0;
}

/* -1 when somebody has taken the lock from us: what was read and written under it may be wrong. */
static int unlock_region(void)
{
	int lost = lock_give(&membership.map->ext.lock, membership.me);
	if (lost)
		__atomic_store_n(&membership.map->ext.changed, 1, __ATOMIC_SEQ_CST);
	mutex_give(&mutex);
	return lost;
}

void region_unlock(void)
{
	unlock_region();
}

/*
 * What all processes hold (needs the lock). Where the file says something else of this process
 * than it knows itself, somebody has written into it: then the slots tell what the others have.
 */
static uint64_t verified_used(int device)
{
	struct vgpu_extension *x = &membership.map->ext;
	uint64_t used = word_get(&x->reserved[device]), mine = membership.mine[device];
	uint64_t told = word_get(&x->slot[membership.slot].used[device]);
	if (__builtin_expect(slots_own_is_suspended(), 0)) /* the call waits until that is over */
		return used > UINT64_MAX - mine ? UINT64_MAX : used + mine;
	if (__builtin_expect(used < mine || told != mine, 0)) {
		repair_region();
		used = word_get(&x->reserved[device]);
	}
	return used < mine ? mine : used;
}

/*
 * Changes what this process holds by `bytes`, which may be negative in two's complement (needs
 * the lock). Who is stopped in here and goes on when another has the lock must not make the sum
 * too small: it is added to, not written, and in between rather too large than too small.
 * pre: used_of was asked under the lock, so that the sum does not fall below zero.
 */
static void change_own_use(int device, uint64_t bytes)
{
	uint64_t *sum = &membership.map->ext.reserved[device];
	int less = (int64_t)bytes < 0, counts = !slots_own_is_suspended();
	if (less && counts)
		__atomic_add_fetch(sum, bytes, __ATOMIC_ACQ_REL);
	membership.mine[device] += bytes;
	slots_write_used(device, membership.mine[device]);
	if (!less && bytes && counts)
		__atomic_add_fetch(sum, bytes, __ATOMIC_ACQ_REL);
}

static void book_change(int device, uint64_t bytes)
{
	(void)verified_used(device);
	change_own_use(device, bytes);
}

/* What monitors read; the limits in force are each process's own. */
static void publish_limits(const struct limits *limits)
{
	struct hami_region *h = &membership.map->hami;
	uint64_t count = 0, named = h->device_num <= HAMI_DEVICES ? h->device_num : 0;
	for (int i = 0; i < HAMI_DEVICES; i++) {
		const struct limits_device *d = &limits->device[i];
		h->limit[i] = d->memory;
		h->sm_limit[i] = d->given ? d->cores : 100;
		if (d->given && d->uuid[0]) {
			snprintf(h->uuid[i], sizeof h->uuid[i], "%s", d->uuid);
			count = (uint64_t)i + 1;
		}
	}
	h->device_num = count > named ? count : named;
	h->priority = limits->priority;
}

/* Enters self.map under its lock; -1 with errno EUSERS when it is full. */
static int enter_region(const struct limits *limits)
{
	membership.me = VGPU_NEWCOMER;
	lock_take(&membership.map->ext.lock, membership.me, slots_may_hold);
	slots_reap();
	int r = slots_claim() < 0 ? -1 : 0;
	if (r == 0) {
		repair_region();
		publish_limits(limits);
	}
	if (lock_give(&membership.map->ext.lock, membership.me))
		__atomic_store_n(&membership.map->ext.changed, 1, __ATOMIC_SEQ_CST);
	membership.me = (uint32_t)membership.slot + 1;
	return r ? (errno = EUSERS, -1) : 0;
}

static void leave_file(void)
{
	if (membership.map)
		prim_unmap(membership.map, sizeof *membership.map);
	if (slots_fd_is_ours())
		prim_close(membership.fd);
	membership = (struct membership){.fd = -1, .slot = -1, .path = membership.path};
}

/* Joins the processes that share the file. 0, or -1 with errno. */
static int join_file(const struct limits *limits)
{
	membership.map = region_file_open(limits->region, &membership.fd);
	if (!membership.map)
		return -1;
	if (prim_identity(membership.fd, membership.file)) {
		prim_close(membership.fd); /* leave_file closes only what it knows to be ours */
		membership.fd = -1;
		return -1;
	}
	int r = enter_region(limits);
	region_file_unlock_format(membership.fd);
	return r;
}

/* What kept this process from joining, in words that say what to look at. */
static const char *join_failure(int error)
{
	if (error == EPROTONOSUPPORT)
		return "processes with another version of this library use it";
	if (error == EUSERS)
		return "as many processes as it has room for use it";
	return strerror(error);
}

int region_attach(const struct limits *limits, char *reason, unsigned long size)
{
	mutex_take(&mutex);
	membership.path = limits->region;
	int r = join_file(limits);
	if (r) {
		snprintf(reason, size, "%s: %s", limits->region, join_failure(errno));
		leave_file();
	}
	mutex_give(&mutex);
	return r;
}

void region_attach_private(const struct limits *limits)
{
	mutex_take(&mutex);
	/* without it region_reserve refuses everything */
	membership.map = region_file_open_private();
	if (membership.map)
		enter_region(limits);
	mutex_give(&mutex);
}

/* Takes the bytes if they are admitted, looking at the slots before it refuses (needs the lock). */
static int take_if_admitted(int device, uint64_t bytes, uint64_t limit)
{
	if (!limit_admits(verified_used(device), bytes, limit)) {
		slots_reap();
		repair_region();
		if (!limit_admits(verified_used(device), bytes, limit))
			return 0;
	}
	change_own_use(device, bytes);
	return 1;
}

static uint64_t generation[HAMI_DEVICES]; /* of what this process has booked, by device */

/*
 * A plain store of a number that no thread has stored before: nobody has to wait for the others'
 * caches.
 */
void region_bump_generation(int device)
{
	static uint64_t threads;
	static _Thread_local uint64_t mark __attribute__((tls_model("initial-exec")));
	if (!mark)
		mark = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED) << 32;
	__atomic_store_n(&generation[device], ++mark, __ATOMIC_RELEASE);
}

uint64_t region_generation(int device)
{
	return __atomic_load_n(&generation[device], __ATOMIC_ACQUIRE);
}

/*
 * A process whose memory is in a checkpoint waits in the driver with its next call or two. One that
 * goes on was never in one: somebody has written that (needs the lock).
 */
static void doubt_suspension(void)
{
	static unsigned reservations;
	if (__builtin_expect(!slots_own_is_suspended(), 1) || ++reservations < REFRESH)
		return;
	reservations = 0;
	word_set(&membership.map->ext.slot[membership.slot].suspended, 0);
	repair_region();
}

/*
 * What was decided while somebody else decided, too, does not count: it is undone and decided
 * again, and refused when that has happened too often.
 */
int region_reserve(int device, uint64_t bytes, uint64_t limit)
{
	int taken = 0;
	if (bytes > LIMIT_MOST)
		return -1;
	for (int i = 0; i < DECISIONS; i++) {
		if (region_lock())
			return -1;
		if (taken)
			book_change(device, -bytes);
		doubt_suspension();
		taken = take_if_admitted(device, bytes, limit);
		if (unlock_region())
			continue;
		if (taken)
			region_bump_generation(device); /* before the driver takes anything */
		return taken ? 0 : -1;
	}
	if (taken)
		region_release(device, bytes);
	return -1;
}

void region_force(int device, uint64_t bytes)
{
	region_bump_generation(device);
	if (region_lock())
		return;
	book_change(device, bytes);
	unlock_region();
}

void region_release(int device, uint64_t bytes)
{
	if (region_lock())
		return;
	book_change(device, -(bytes < membership.mine[device] ? bytes : membership.mine[device]));
	unlock_region();
}

void region_add_overhead(int device, enum region_overhead_kind kind, int64_t bytes, int charged)
{
	if (region_lock())
		return;
	membership.overhead[kind][device] += (uint64_t)bytes;
	membership.counted[device] += charged ? (uint64_t)bytes : 0;
	book_change(device, charged ? (uint64_t)bytes : 0);
	unlock_region();
}

void region_add_uncounted(int device, enum vgpu_shown kind, int64_t bytes)
{
	if (region_lock())
		return;
	membership.shown[kind][device] += (uint64_t)bytes;
	word_set(&membership.map->ext.slot[membership.slot].shown[kind][device],
		 membership.shown[kind][device]);
	unlock_region();
}

uint64_t region_own_data(int device)
{
	mutex_take(&mutex);
	uint64_t data = membership.mine[device] - membership.counted[device];
	mutex_give(&mutex);
	return data;
}

uint64_t region_used(int device)
{
	if (region_lock())
		return 0;
	slots_reap();
	uint64_t used = verified_used(device);
	unlock_region();
	return used;
}

void region_after_fork(void)
{
	mutex = (struct mutex){0}; /* another thread of the parent may have held it */
	lock_after_fork();
	leave_file(); /* the lock on the slot is the open file's, which the parent still has */
}

struct vgpu_region *region_mapping(void)
{
	return membership.map;
}

uint64_t region_own_process(void)
{
	return (uint64_t)prim_pid_space(membership.identity) << 32 | (uint32_t)prim_pid();
}

int region_own_slot(void)
{
	return membership.slot;
}
