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
#define VERSION 1
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

/* Sizes and stamps a new file; refuses one of another layout. Runs under the OFD lock. */
static int prepare_file(int fd, char *error, size_t size)
{
	struct stat st;
	if (fstat(fd, &st))
		return snprintf(error, size, "fstat: %s", strerror(errno)), -1;
	if (st.st_size == 0) {
		(void)fchmod(fd, 0666); /* containers may run as other users */
		if (ftruncate(fd, sizeof(struct fg_state)))
			return snprintf(error, size, "ftruncate: %s", strerror(errno)), -1;
	} else if (st.st_size != (off_t)sizeof(struct fg_state)) {
		return snprintf(error, size, "%lld bytes, want %zu: remove it", (long long)st.st_size,
				sizeof(struct fg_state)), -1;
	}
	return 0;
}

static int map_file(int fd, char *error, size_t size)
{
	if (range_lock(fd, F_OFD_SETLKW, F_WRLCK, 0))
		return snprintf(error, size, "lock: %s", strerror(errno)), -1;
	int r = prepare_file(fd, error, size);
	if (r == 0) {
		struct fg_state *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (m == MAP_FAILED) {
			r = (snprintf(error, size, "mmap: %s", strerror(errno)), -1);
		} else if (m->magic && (m->magic != MAGIC || m->version != VERSION)) {
			munmap(m, sizeof *m);
			r = (snprintf(error, size, "not a state file of this version: remove it"), -1);
		} else {
			m->magic = MAGIC;
			m->version = VERSION;
			m->size = sizeof *m;
			self.map = m;
		}
	}
	range_lock(fd, F_OFD_SETLK, F_UNLCK, 0);
	return r;
}

int fg_state_open(const char *dir, char *error, size_t size)
{
	int r = 0;
	pthread_mutex_lock(&self.mutex);
	if (!self.map) {
		char path[512], why[256] = "";
		snprintf(path, sizeof path, "%s/state", dir);
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
		if (fd < 0)
			snprintf(why, sizeof why, "%s", strerror(errno));
		if (fd < 0 || map_file(fd, why, sizeof why)) {
			snprintf(error, size, "%s: %s", path, why);
			if (fd >= 0)
				close(fd);
			r = -1;
		} else {
			self.fd = fd;
		}
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
	for (int i = 0; i < FG_MAX_PROCESSES; i++)
		if (self.map->process[i].in_use && fg_owner(i) < 0)
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
		return i;
	}
	return -1;
}

uint64_t fg_used(int minor)
{
	uint64_t sum = 0;
	fg_reap();
	for (int i = 0; i < FG_MAX_PROCESSES; i++)
		if (self.map->process[i].in_use)
			sum += self.map->process[i].used[minor];
	return sum;
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
