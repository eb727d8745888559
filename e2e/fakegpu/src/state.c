/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x3155504745414b46ULL /* "FKAEGPU1" */
#define VERSION 9
#define SLOT_LOCK_BASE 4096 /* byte of slot 0's lock; byte 0 is the mutex */

static struct {
	pthread_mutex_t mutex;
	int fd;
	struct fg_state *map;
} self = {PTHREAD_MUTEX_INITIALIZER, -1, NULL};

uint64_t fg_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static int range_lock(int fd, int command, short type, off_t start)
{
	struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = 1};
	int r;
	do
		r = fcntl(fd, command, &l);
	while (r < 0 && errno == EINTR);
	return r;
}

/* 1 when some process has a slot in the file, of whatever version. */
static int has_owners(int fd)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SLOT_LOCK_BASE, .l_len = FG_MAX_PROCESSES};
	return fcntl(fd, F_OFD_GETLK, &l) || l.l_type != F_UNLCK;
}

enum { MAPPED = 0, FAILED = -1, OTHER_VERSION = -2 };

/* Maps the file, sizing and stamping a new one. Runs under the OFD lock. */
static int map_locked(int fd, char *error, size_t size)
{
	struct stat st;
	if (fstat(fd, &st))
		return snprintf(error, size, "fstat: %s", strerror(errno)), FAILED;
	if (st.st_size == 0) {
		(void)fchmod(fd, 0666); /* containers may run as other users */
		if (ftruncate(fd, sizeof(struct fg_state)))
			return snprintf(error, size, "ftruncate: %s", strerror(errno)), FAILED;
	} else if (st.st_size != (off_t)sizeof(struct fg_state)) {
		return OTHER_VERSION;
	}
	struct fg_state *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED)
		return snprintf(error, size, "mmap: %s", strerror(errno)), FAILED;
	if (m->magic && (m->magic != MAGIC || m->version != VERSION)) {
		munmap(m, sizeof *m);
		return OTHER_VERSION;
	}
	m->magic = MAGIC;
	m->version = VERSION;
	m->size = sizeof *m;
	self.map = m;
	return MAPPED;
}

/* Removes the file unless somebody has put another in its place already. */
static int remove_old(int fd, const char *path)
{
	struct stat here, there;
	if (fstat(fd, &here) || stat(path, &there) || here.st_ino != there.st_ino)
		return 0;
	return unlink(path);
}

/* Opens and maps; a file of another version is replaced if nobody uses it. */
static int open_and_map(const char *path, int attempt, char *error, size_t size)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0 || range_lock(fd, F_OFD_SETLKW, F_WRLCK, 0)) {
		snprintf(error, size, "%s", strerror(errno));
		if (fd >= 0)
			close(fd);
		return FAILED;
	}
	int r = map_locked(fd, error, size);
	if (r == OTHER_VERSION && has_owners(fd))
		r = (snprintf(error, size, "of another version of the fake, and in use: stop its users"), FAILED);
	if (r == OTHER_VERSION && (attempt || remove_old(fd, path)))
		r = (snprintf(error, size, "of another version of the fake: remove it"), FAILED);
	range_lock(fd, F_OFD_SETLK, F_UNLCK, 0);
	if (r == MAPPED)
		return self.fd = fd, MAPPED;
	close(fd);
	return r == OTHER_VERSION ? open_and_map(path, 1, error, size) : FAILED;
}

int fg_state_open(const char *dir, char *error, size_t size)
{
	int r = 0;
	pthread_mutex_lock(&self.mutex);
	if (!self.map) {
		char path[512], why[256] = "";
		snprintf(path, sizeof path, "%s/state", dir);
		r = open_and_map(path, 0, why, sizeof why);
		if (r != MAPPED)
			snprintf(error, size, "%s: %s", path, why);
	}
	pthread_mutex_unlock(&self.mutex);
	return r;
}

struct fg_state *fg_state(void)
{
	return self.map;
}

void fg_lock(void)
{
	pthread_mutex_lock(&self.mutex);
	range_lock(self.fd, F_OFD_SETLKW, F_WRLCK, 0);
}

void fg_unlock(void)
{
	range_lock(self.fd, F_OFD_SETLK, F_UNLCK, 0);
	pthread_mutex_unlock(&self.mutex);
}

int fg_owner(int slot)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SLOT_LOCK_BASE + slot, .l_len = 1};
	if (!self.map->process[slot].in_use || fcntl(self.fd, F_OFD_GETLK, &l) || l.l_type == F_UNLCK)
		return -1;
	return l.l_pid > 0 ? l.l_pid : 0;
}

void fg_reap(void)
{
	for (uint64_t i = 0; i < self.map->high && i < FG_MAX_PROCESSES; i++)
		if (self.map->process[i].in_use && fg_owner((int)i) < 0)
			memset(&self.map->process[i], 0, sizeof self.map->process[i]);
}

static void read_name(char *out, size_t size)
{
	int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);
	if (fd >= 0)
		close(fd);
	out[n > 0 ? n : 0] = 0;
	out[strcspn(out, "\n")] = 0;
}

int fg_claim(void)
{
	fg_reap();
	for (int i = 0; i < FG_MAX_PROCESSES; i++) {
		struct fg_process *p = &self.map->process[i];
		if (p->in_use || range_lock(self.fd, F_SETLK, F_WRLCK, SLOT_LOCK_BASE + i))
			continue;
		memset(p, 0, sizeof *p);
		p->pid = (uint32_t)getpid();
		read_name(p->name, sizeof p->name);
		p->in_use = 1;
		if (self.map->high <= (uint64_t)i)
			self.map->high = (uint64_t)i + 1;
		return i;
	}
	return -1;
}

uint64_t fg_used(int minor)
{
	uint64_t sum = 0;
	fg_reap();
	for (uint64_t i = 0; i < self.map->high && i < FG_MAX_PROCESSES; i++)
		if (self.map->process[i].in_use)
			sum += self.map->process[i].used[minor];
	return sum;
}

uint64_t fg_used_of(const struct fg_gpu *gpu)
{
	if (!gpu->gi_serial)
		return fg_used(gpu->minor);
	uint64_t sum = 0;
	fg_reap();
	for (uint64_t i = 0; i < self.map->high && i < FG_MAX_PROCESSES; i++)
		if (self.map->process[i].in_use && self.map->process[i].gi_serial == gpu->gi_serial)
			sum += self.map->process[i].used[gpu->minor];
	return sum;
}

/* Reaps no more: fg_used has, and a slot that is still in use counts until its process is dead. */
void fg_note_use(int minor)
{
	uint64_t sum = 0, *high = &self.map->device[minor].used_high;
	for (uint64_t i = 0; i < self.map->high && i < FG_MAX_PROCESSES; i++)
		if (self.map->process[i].in_use)
			sum += self.map->process[i].used[minor];
	if (sum > *high)
		*high = sum;
}

uint64_t fg_used_high(int minor)
{
	return self.map->device[minor].used_high;
}

void fg_reset_used_high(int minor)
{
	self.map->device[minor].used_high = fg_used(minor);
}

int64_t fg_licence_of(const struct fg_gpu *gpu)
{
	const struct fg_device_state *d = &self.map->device[gpu->minor];
	return d->licence_known ? d->licence : gpu->licence;
}

void fg_after_fork(void)
{
	if (self.map)
		munmap(self.map, sizeof *self.map);
	if (self.fd >= 0)
		close(self.fd); /* POSIX locks are the parent's, and stay with it */
	self.map = NULL;
	self.fd = -1;
	pthread_mutex_init(&self.mutex, NULL);
}
