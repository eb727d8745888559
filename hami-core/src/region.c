/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "region.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "limit.h"
#include "log.h"
#include "prim.h"

#define LOCK_SECONDS 10 /* a holder needs well under a millisecond; longer means it is stopped */

static struct {
	struct vgpu_region *map; /* NULL before region_attach */
	int fd;                  /* -1: private accounts */
	int slot;
	unsigned long long file[2]; /* what fd was opened on */
	uint64_t generation;        /* of our slot */
	uint64_t mine[HAMI_DEVICES]; /* what we hold, in case somebody takes our slot for a dead one's */
	uint64_t overhead[REGION_OVERHEADS][HAMI_DEVICES], counted[HAMI_DEVICES]; /* counted: the part of it in `mine` */
	uint64_t shown[VGPU_SHOWN][HAMI_DEVICES];
	const char *path;
} self = {.fd = -1, .slot = -1};

/* Restores I1 after a holder of the mutex has died (or a file was found half-made). */
static void recount(struct vgpu_extension *x)
{
	for (int d = 0; d < HAMI_DEVICES; d++) {
		uint64_t sum = 0;
		for (int i = 0; i < HAMI_PROCESSES; i++)
			if (x->slot[i].state == SLOT_LIVE)
				sum += x->slot[i].used[d];
		__atomic_store_n(&x->reserved[d], sum, __ATOMIC_RELAXED);
	}
}

static void unlock(void)
{
	pthread_mutex_unlock(&self.map->ext.mutex);
}

/* Sets what a slot holds of a device, with its mirror (needs the lock). */
static void write_used(int slot, int device, uint64_t bytes)
{
	struct vgpu_region *m = self.map;
	struct hami_memory *mirror = &m->hami.procs[slot].used[device];
	m->ext.slot[slot].used[device] = bytes;
	mirror->data = bytes;
	mirror->total = bytes;
	if (slot != self.slot) {
		mirror->context = mirror->module = 0;
		return;
	}
	mirror->context = self.overhead[REGION_CONTEXT][device];
	mirror->module = self.overhead[REGION_MODULE][device];
	mirror->data = bytes - (self.counted[device] < bytes ? self.counted[device] : bytes);
}

static void add_reserved(int device, uint64_t bytes)
{
	__atomic_add_fetch(&self.map->ext.reserved[device], bytes, __ATOMIC_RELAXED);
}

static void free_slot(int i)
{
	struct vgpu_slot *s = &self.map->ext.slot[i];
	for (int d = 0; d < HAMI_DEVICES; d++) {
		add_reserved(d, -s->used[d]);
		write_used(i, d, 0);
	}
	memset(s->shown, 0, sizeof s->shown);
	self.map->hami.procs[i].status = 0;
	self.map->hami.procs[i].pid = 0;
	s->pid = 0;
	s->state = SLOT_FREE;
}

static int fd_is_ours(void)
{
	unsigned long long now[2];
	return self.fd >= 0 && prim_identity(self.fd, now) == 0 && now[0] == self.file[0] && now[1] == self.file[1];
}

/*
 * A program may close descriptors it does not know, ours among them (daemons close all),
 * and the number may stand for another file by now. The lock on our slot stays: it belongs
 * to the open file, which our mapping keeps.
 */
static void reopen_if_closed(void)
{
	if (self.fd < 0 || fd_is_ours())
		return;
	self.fd = prim_open_shared(self.path);
	if (self.fd >= 0 && !fd_is_ours()) {
		prim_close(self.fd);
		self.fd = -1; /* the file is gone: nobody can be probed any more, and we cannot be */
	}
}

/* Frees the slots of dead processes (needs the lock). */
static void reap(void)
{
	reopen_if_closed();
	if (self.fd < 0)
		return;
	int high = self.map->hami.proc_num;
	for (int i = 0; i < high && i < HAMI_PROCESSES; i++)
		if (i != self.slot && self.map->ext.slot[i].state == SLOT_LIVE && !prim_locked(self.fd, VGPU_SLOT_LOCK + i))
			free_slot(i);
}

/* Takes the first slot nobody has (needs the lock). */
static int claim(void)
{
	struct vgpu_region *m = self.map;
	for (int i = 0; i < HAMI_PROCESSES; i++) {
		struct vgpu_slot *s = &m->ext.slot[i];
		if (s->state != SLOT_FREE || (self.fd >= 0 && prim_lock_try(self.fd, VGPU_SLOT_LOCK + i)))
			continue;
		memset(&m->hami.procs[i], 0, sizeof m->hami.procs[i]);
		memset(s->used, 0, sizeof s->used);
		memset(s->shown, 0, sizeof s->shown);
		memset(s->flight, 0, sizeof s->flight);
		s->pid = prim_pid();
		s->generation++;
		s->state = SLOT_LIVE;
		m->hami.procs[i].pid = s->pid;
		m->hami.procs[i].status = 1;
		if (m->hami.proc_num <= i)
			m->hami.proc_num = i + 1;
		self.generation = s->generation;
		return self.slot = i;
	}
	return -1;
}

/* Somebody has freed our slot (a tenant wrote into the file, say): take another and book again what we hold (needs the lock). */
static void rejoin(void)
{
	reopen_if_closed();
	self.slot = -1;
	if (claim() < 0)
		return;
	memcpy(self.map->ext.slot[self.slot].shown, self.shown, sizeof self.shown);
	for (int d = 0; d < HAMI_DEVICES; d++) {
		write_used(self.slot, d, self.mine[d]);
		add_reserved(d, self.mine[d]);
	}
}

/* Takes the mutex as it is. 0 with it held, or -1. */
static int lock_plain(void)
{
	struct vgpu_extension *x = &self.map->ext;
	int r = prim_mutex_lock(&x->mutex, LOCK_SECONDS);
	if (r == EOWNERDEAD) {
		recount(x);
		r = prim_mutex_consistent(&x->mutex);
	}
	if (r)
		log_line(LOG_ERROR, "the region's lock cannot be had: %s", strerror(r));
	return r ? -1 : 0;
}

/* 0 with the mutex held and a slot that is ours, or -1 when that is impossible. See region_lock. */
static int lock(void)
{
	if (!self.map || lock_plain())
		return -1;
	const struct vgpu_slot *s = self.slot < 0 ? NULL : &self.map->ext.slot[self.slot];
	if (!s || s->state != SLOT_LIVE || s->generation != self.generation)
		rejoin();
	if (self.slot >= 0)
		return 0;
	unlock();
	return -1;
}

int region_lock(void)
{
	return lock();
}

void region_unlock(void)
{
	unlock();
}

/*
 * What all processes hold (needs the lock). Where the file says something else of this process than it knows itself, somebody
 * has written into it: then the slots tell what the others have.
 */
static uint64_t used_of(int device)
{
	struct vgpu_extension *x = &self.map->ext;
	if (__builtin_expect(x->reserved[device] < self.mine[device] || x->slot[self.slot].used[device] != self.mine[device], 0)) {
		write_used(self.slot, device, self.mine[device]);
		recount(x);
	}
	return x->reserved[device];
}

/* Changes what this process holds by `bytes`, which may be negative in two's complement (needs the lock). */
static void book(int device, uint64_t bytes)
{
	(void)used_of(device); /* so that the sum does not fall below zero */
	self.mine[device] += bytes;
	write_used(self.slot, device, self.mine[device]);
	add_reserved(device, bytes);
}

/* Fills an all-zero region. The extension's magic comes last: without it the next process starts over. */
static int fill(struct vgpu_region *m)
{
	if (prim_mutex_make(&m->ext.mutex))
		return -1;
	m->hami.magic = HAMI_MAGIC;
	m->hami.major = 1;
	m->hami.minor = 2;
	m->hami.semaphore[0] = 1; /* free, should an old reader ever wait for it */
	m->hami.utilization_switch = 1;
	m->ext.version = VGPU_EXTENSION_VERSION;
	m->ext.size = sizeof m->ext;
	__atomic_store_n(&m->ext.magic, VGPU_EXTENSION_MAGIC, __ATOMIC_RELEASE);
	return 0;
}

static int usable(const struct vgpu_region *m)
{
	return m->ext.magic == VGPU_EXTENSION_MAGIC && m->ext.version == VGPU_EXTENSION_VERSION &&
	       m->ext.size == sizeof m->ext && m->hami.magic == HAMI_MAGIC && m->hami.major == 1;
}

/* Maps the file; one that is short, foreign or unfinished is made anew. Runs under the format lock. */
static struct vgpu_region *map_file(int fd)
{
	struct vgpu_region *m = NULL;
	if (prim_size(fd) >= (long long)sizeof *m) {
		m = prim_map(fd, sizeof *m);
		if (m && usable(m))
			return m;
		if (m)
			prim_unmap(m, sizeof *m);
	}
	if (prim_clear(fd, sizeof *m) || !(m = prim_map(fd, sizeof *m)))
		return NULL;
	if (fill(m) == 0)
		return m;
	prim_unmap(m, sizeof *m);
	return NULL;
}

static struct vgpu_region *open_region(const char *path, int *out_fd)
{
	int fd = prim_open_shared(path);
	struct vgpu_region *m = NULL;
	if (fd >= 0 && prim_lock_wait(fd, VGPU_FORMAT_LOCK) == 0) {
		m = map_file(fd);
		int saved = errno;
		prim_unlock(fd, VGPU_FORMAT_LOCK);
		errno = saved;
	}
	if (fd >= 0 && !m)
		prim_close(fd);
	*out_fd = m ? fd : -1;
	return m;
}

/* What monitors read; the limits in force are each process's own. */
static void publish(const struct limits *limits)
{
	struct hami_region *h = &self.map->hami;
	uint64_t count = 0;
	for (int i = 0; i < HAMI_DEVICES; i++) {
		const struct limits_device *d = &limits->device[i];
		h->limit[i] = d->memory;
		h->sm_limit[i] = d->given ? d->cores : 100;
		if (d->given && d->uuid[0]) {
			snprintf(h->uuid[i], sizeof h->uuid[i], "%s", d->uuid);
			count = (uint64_t)i + 1;
		}
	}
	if (count > h->device_num)
		h->device_num = count;
	h->priority = limits->priority;
}

/* Enters self.map under its lock; -1 with errno when it is full or stuck. */
static int enter(const struct limits *limits)
{
	if (lock_plain())
		return errno = EBUSY, -1;
	reap();
	int r = claim() < 0 ? -1 : 0;
	if (r == 0)
		publish(limits);
	unlock();
	return r ? (errno = ENOSPC, -1) : 0;
}

static void leave_file(void)
{
	if (self.map)
		prim_unmap(self.map, sizeof *self.map);
	if (fd_is_ours())
		prim_close(self.fd);
	self.map = NULL;
	self.fd = self.slot = -1;
	memset(self.mine, 0, sizeof self.mine);
	memset(self.overhead, 0, sizeof self.overhead);
	memset(self.counted, 0, sizeof self.counted);
	memset(self.shown, 0, sizeof self.shown);
}

int region_attach(const struct limits *limits, char *reason, unsigned long size)
{
	self.path = limits->region;
	self.map = open_region(limits->region, &self.fd);
	if (self.map && prim_identity(self.fd, self.file) == 0 && enter(limits) == 0)
		return 0;
	snprintf(reason, size, "%s: %s", limits->region, strerror(errno));
	leave_file();
	self.map = prim_map(-1, sizeof *self.map);
	if (self.map && (fill(self.map) || enter(limits)))
		leave_file(); /* then region_reserve refuses everything */
	return -1;
}

int region_reserve(int device, uint64_t bytes, uint64_t limit)
{
	if (lock())
		return -1;
	uint64_t used = used_of(device);
	if (!limit_admits(used, bytes, limit)) {
		reap();
		used = used_of(device);
	}
	int ok = limit_admits(used, bytes, limit);
	if (ok)
		book(device, bytes);
	unlock();
	return ok ? 0 : -1;
}

void region_force(int device, uint64_t bytes)
{
	if (lock())
		return;
	book(device, bytes);
	unlock();
}

void region_release(int device, uint64_t bytes)
{
	if (lock())
		return;
	book(device, -(bytes < self.mine[device] ? bytes : self.mine[device]));
	unlock();
}

void region_overhead(int device, enum region_overhead kind, int64_t bytes, int charged)
{
	if (lock())
		return;
	self.overhead[kind][device] += (uint64_t)bytes;
	self.counted[device] += charged ? (uint64_t)bytes : 0;
	book(device, charged ? (uint64_t)bytes : 0);
	unlock();
}

void region_show(int device, enum vgpu_shown kind, int64_t bytes)
{
	if (lock())
		return;
	self.shown[kind][device] += (uint64_t)bytes;
	self.map->ext.slot[self.slot].shown[kind][device] = self.shown[kind][device];
	unlock();
}

int region_has_process(int pid)
{
	int found = 0;
	if (pid <= 0 || lock())
		return 0;
	for (int i = 0; i < self.map->hami.proc_num && i < HAMI_PROCESSES && !found; i++)
		found = self.map->ext.slot[i].state == SLOT_LIVE && self.map->ext.slot[i].pid == pid;
	unlock();
	return found;
}

uint64_t region_own_data(int device)
{
	if (lock())
		return 0;
	uint64_t data = self.mine[device] - self.counted[device];
	unlock();
	return data;
}

uint64_t region_used(int device)
{
	if (lock())
		return 0;
	reap();
	uint64_t used = used_of(device);
	unlock();
	return used;
}

/* A process may have several slots: one for each copy of this library in it. 1 for one that was not there yet. */
static unsigned merge_process(struct region_process *out, unsigned n, unsigned room, struct region_process found)
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
	if (lock())
		return 0;
	reap();
	for (int i = 0; i < self.map->hami.proc_num && i < HAMI_PROCESSES; i++) {
		const struct vgpu_slot *s = &self.map->ext.slot[i];
		if (s->state != SLOT_LIVE || s->pid <= 0 || (!s->used[device] && !self.map->hami.procs[i].used[device].context))
			continue;
		n += merge_process(out, n, room, (struct region_process){s->pid, s->used[device]});
	}
	unlock();
	return n;
}

void region_name_device(int device, const char *uuid)
{
	if (lock())
		return;
	struct hami_region *h = &self.map->hami;
	snprintf(h->uuid[device], sizeof h->uuid[device], "%s", uuid);
	if (h->device_num <= (uint64_t)device)
		h->device_num = (uint64_t)device + 1;
	unlock();
}

void region_after_fork(void)
{
	leave_file(); /* the lock on the slot belongs to the open file, which the parent still has */
}

int region_check(void)
{
	const struct vgpu_extension *x = &self.map->ext;
	if (lock())
		return -1;
	int bad = 0;
	for (int d = 0; d < HAMI_DEVICES; d++) {
		uint64_t sum = 0;
		for (int i = 0; i < HAMI_PROCESSES; i++) {
			sum += x->slot[i].state == SLOT_LIVE ? x->slot[i].used[d] : 0;
			bad |= x->slot[i].used[d] != self.map->hami.procs[i].used[d].total;
			bad |= x->slot[i].state == SLOT_LIVE && i >= self.map->hami.proc_num;
		}
		bad |= sum != x->reserved[d];
	}
	unlock();
	return bad ? -1 : 0;
}

struct vgpu_region *region_memory(void)
{
	return self.map;
}

int region_slot(void)
{
	return self.slot;
}
