/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_later.c: programs for entry_test.c that find a region which cannot be used, and go on when
 * it can be.
 */
#define _GNU_SOURCE
#include "hamicore_abi.h"
#include "probe_entry.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TOLD 18 /* descriptors of children: what they tell, and how they are held */
#define HELD 19

/* Leaves a descriptor to the program that is run next, under a number above all others. */
static void hand_on(int fd, int as)
{
	NEED(fd < TOLD && dup2(fd, as) == as);
}

static long long now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits until memory is given out. */
static void *wait_for_memory(void *unused)
{
	CUdeviceptr at;
	CUresult r = CUDA_ERROR_NOT_PERMITTED;
	use_device(0);
	for (int i = 0; i < 1000 && (r = cuMemAlloc_v2(&at, 1)) == CUDA_ERROR_NOT_PERMITTED; i++)
		usleep(10000);
	NEED(r == CUDA_SUCCESS && cuMemFree_v2(at) == CUDA_SUCCESS);
	return unused;
}

/* How often the region was opened or made since the last question. */
static int opened(int watch)
{
	_Alignas(struct inotify_event) char events[65536];
	ssize_t n = read(watch, events, sizeof events);
	int times = 0;
	for (ssize_t at = 0; at < n;) {
		struct inotify_event *e = (struct inotify_event *)(events + at);
		times += !strncmp(e->name, "vgpu.cache", 10);
		at += (ssize_t)(sizeof *e + e->len);
	}
	return times;
}

/*
 * The region's folder is missing, then no file may become long, then all is well. A loop of calls
 * tries ten times a second.
 */
void region_later(void)
{
	struct rlimit all, little;
	pthread_t other[4];
	char path[256];
	snprintf(path, sizeof path, "%s/later", getenv("FAKEGPU_DIR"));
	use_device(0);
	for (int i = 0; i < 3; i++)
		NEED(take(1) == CUDA_ERROR_NOT_PERMITTED);
	NEED(!getrlimit(RLIMIT_FSIZE, &all));
	little = all;
	little.rlim_cur = 1000;
	int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	NEED(!setrlimit(RLIMIT_FSIZE, &little) && !mkdir(path, 0755));
	NEED(watch >= 0 && inotify_add_watch(watch, path, IN_OPEN) >= 0);
	long long begin = now_ms(), took, times = 0;
	do {
		NEED(take(1) == CUDA_ERROR_NOT_PERMITTED);
		times += opened(watch);
		took = now_ms() - begin;
	} while (took < 1000 || !times);
	NEED(times <= took / 90 + 2);
	for (int i = 0; i < 4; i++)
		NEED(!pthread_create(&other[i], NULL, wait_for_memory, NULL));
	NEED(!setrlimit(RLIMIT_FSIZE, &all));
	for (int i = 0; i < 4; i++)
		NEED(!pthread_join(other[i], NULL));
	is_limited();
	take_40();
}

/* A context that is made while memory is refused is charged like any other. */
void context_later(void)
{
	char path[256];
	snprintf(path, sizeof path, "%s/later", getenv("FAKEGPU_DIR"));
	use_device(0);
	NEED(take(1) == CUDA_ERROR_NOT_PERMITTED && !mkdir(path, 0755));
	wait_for_memory(NULL);
	NEED(left() == 44 * MIB && take(46 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
}

/*
 * The region's file system is full, and then has room. Of several processes that wait for memory
 * one gets three quarters of the limit, and the others nothing.
 */
void room_later(void)
{
	int told[2], held[2], given = 0, status;
	char path[256], block[4096] = {0}, answer;
	NEED(!pipe2(told, O_CLOEXEC) && !pipe2(held, O_CLOEXEC));
	snprintf(path, sizeof path, "%s/small/filler", getenv("FAKEGPU_DIR"));
	int filler = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	while (write(filler, block, sizeof block) > 0)
		;
	NEED(errno == ENOSPC && !close(filler));
	for (int i = 0; i < 4; i++)
		if (fork() == 0) {
			hand_on(told[1], TOLD);
			hand_on(held[0], HELD);
			execl("/proc/self/exe", "probe_entry", "room-child", (char *)NULL);
		}
	for (int i = 0; i < 4; i++)
		NEED(read(told[0], &answer, 1) == 1 && answer == 'r');
	NEED(!unlink(path));
	for (int i = 0; i < 4; i++) {
		NEED(read(told[0], &answer, 1) == 1 && (answer == 'y' || answer == 'n'));
		given += answer == 'y';
	}
	NEED(given == 1);
	close(held[1]);
	for (int i = 0; i < 4; i++)
		NEED(wait(&status) > 0 && status == 0);
}

void room_child(void)
{
	CUresult r = CUDA_ERROR_NOT_PERMITTED;
	char none;
	alarm(60);
	use_device(0);
	NEED(take(48 * MIB) == CUDA_ERROR_NOT_PERMITTED && write(TOLD, "r", 1) == 1);
	while ((r = take(48 * MIB)) == CUDA_ERROR_NOT_PERMITTED)
		usleep(1000);
	NEED(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(write(TOLD, r == CUDA_SUCCESS ? "y" : "n", 1) == 1);
	NEED(read(HELD, &none, 1) == 0); /* until all have answered */
}

/* The region's header says for a while that processes of another version use it. */
void another_version(void)
{
	int told[2], status;
	char answer;
	use_device(0);
	NEED(take(40 * MIB) == CUDA_SUCCESS && !pipe2(told, O_CLOEXEC));
	int fd = open(getenv("PROBE_REGION"), O_RDWR | O_CLOEXEC);
	struct vgpu_region *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	NEED(r != MAP_FAILED);
	r->ext.version = 2;
	r->ext.size += 64;
	pid_t pid = fork();
	if (pid == 0) {
		hand_on(told[1], TOLD);
		execl("/proc/self/exe", "probe_entry", "version-child", (char *)NULL);
	}
	NEED(read(told[0], &answer, 1) == 1);
	r->ext.version = VGPU_EXTENSION_VERSION;
	r->ext.size -= 64;
	NEED(waitpid(pid, &status, 0) == pid && status == 0);
}

void version_child(void)
{
	closed();
	NEED(write(TOLD, "r", 1) == 1);
	wait_for_memory(NULL);
	has_24();
}
