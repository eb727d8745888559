/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_relatives.c: processes that no fork handler has seen begin (raw clone, as _Fork and some
 * runtimes do it), and owners of memory that die while such a relative lives, with descriptors
 * closed and the region deleted. All of 64 MiB is to be had, once.
 */
#define _GNU_SOURCE
#include "probe.h"

#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT (64 * MIB)

uint64_t fakegpu_used(int ordinal);

/* fork() without its handlers. */
static pid_t bare_fork(void)
{
	fflush(stdout);
	return (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
}

__attribute__((noreturn)) static void wait_to_be_killed(void)
{
	alarm(120);
	for (;;)
		pause();
}

/* Asks NVML how much memory there is, as monitors and frameworks do before they fork. */
static void ask_nvml(void)
{
	void *h = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	nvmlReturn_t (*init)(void);
	nvmlReturn_t (*find)(const char *, nvmlDevice_t *);
	nvmlReturn_t (*info)(nvmlDevice_t, nvmlMemory_t *);
	nvmlDevice_t device;
	nvmlMemory_t memory;
	NEED(h != NULL);
	*(void **)&init = dlsym(h, "nvmlInit_v2");
	*(void **)&find = dlsym(h, "nvmlDeviceGetHandleByUUID");
	*(void **)&info = dlsym(h, "nvmlDeviceGetMemoryInfo");
	NEED(!init() && !find("GPU-00000000-0000-0000-0000-000000000001", &device));
	NEED(!info(device, &memory) && memory.total == LIMIT);
}

static void tell(int fd)
{
	pid_t pid = getpid();
	NEED(write(fd, &pid, sizeof pid) == sizeof pid);
}

/* Which process has told that it is ready. */
static pid_t hear(int fd)
{
	pid_t pid;
	NEED(read(fd, &pid, sizeof pid) == sizeof pid);
	return pid;
}

/* A child without handlers that takes all there is, and keeps it until it is killed. */
static pid_t grasping_child(int ready, uint64_t *got)
{
	pid_t pid = bare_fork();
	if (pid)
		return pid;
	use_device(0);
	*got = 0;
	for (uint64_t piece = 32 * MIB; piece >= 2 * MIB; piece /= 2)
		while (take(piece) == CUDA_SUCCESS)
			*got += piece;
	NEED(write(ready, got, sizeof *got) == sizeof *got);
	wait_to_be_killed();
}

static void end_child(pid_t pid)
{
	int status;
	NEED(!kill(pid, SIGKILL) && waitpid(pid, &status, 0) == pid);
}

/* Parent and children each use the device for the first time after the fork. */
void probe_relatives_sum(void)
{
	int ready[2];
	pid_t pid[3];
	uint64_t got, sum = 0;
	ask_nvml();
	NEED(!pipe(ready));
	for (int i = 0; i < 3; i++) {
		pid[i] = grasping_child(ready[1], &got);
		NEED(read(ready[0], &got, sizeof got) == sizeof got);
		sum += got;
	}
	use_device(0);
	NEED(sum == LIMIT && take(2 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(fakegpu_used(0) == LIMIT && left() == 0);
	for (int i = 0; i < 3; i++)
		end_child(pid[i]);
	NEED(left() == LIMIT && take(LIMIT) == CUDA_SUCCESS);
}

/* An owner that has forked a child without handlers, which lives on and never asks for anything. */
static pid_t owner_with_relative(int ready)
{
	pid_t pid = fork();
	if (pid)
		return pid;
	use_device(0);
	NEED(take(40 * MIB) == CUDA_SUCCESS);
	if (bare_fork() == 0) {
		tell(ready);
		wait_to_be_killed();
	}
	wait_to_be_killed();
}

/* The owner is dead: what it held is to be had, though its relative has all that it had open. */
void probe_relatives_dead_owner(void)
{
	int ready[2];
	NEED(!pipe(ready) && !prctl(PR_SET_CHILD_SUBREAPER, 1));
	pid_t owner = owner_with_relative(ready[1]);
	pid_t relative = hear(ready[0]);
	use_device(0);
	NEED(left() == 24 * MIB && take(26 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	end_child(owner);
	NEED(left() == LIMIT && take(LIMIT) == CUDA_SUCCESS && !kill(relative, SIGKILL));
}

/* A child without handlers that has memory dies; its own such child lives. */
void probe_relatives_dead_child(void)
{
	int ready[2];
	NEED(!pipe(ready) && !prctl(PR_SET_CHILD_SUBREAPER, 1));
	ask_nvml();
	pid_t child = bare_fork();
	if (child == 0) {
		use_device(0);
		NEED(take(40 * MIB) == CUDA_SUCCESS);
		if (bare_fork() == 0)
			tell(ready[1]);
		wait_to_be_killed();
	}
	pid_t relative = hear(ready[0]);
	use_device(0);
	NEED(left() == 24 * MIB);
	end_child(child);
	NEED(left() == LIMIT && take(LIMIT) == CUDA_SUCCESS && !kill(relative, SIGKILL));
}

/* Closes what this process has of the region, as programs do that close all they do not know. */
static void close_region(void)
{
	char path[64], target[256];
	for (int fd = 3; fd < 256; fd++) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, target, sizeof target - 1);
		target[n < 0 ? 0 : n] = 0;
		if (strstr(target, "vgpu.cache"))
			close(fd);
	}
}

static pid_t neighbour(int ready, int closes)
{
	pid_t pid = fork();
	if (pid)
		return pid;
	use_device(0);
	NEED(take(20 * MIB) == CUDA_SUCCESS);
	if (closes)
		close_region();
	tell(ready);
	wait_to_be_killed();
}

/*
 * Descriptors closed, and the region deleted: neighbours that live are counted, and those that have
 * died are not.
 */
void probe_relatives_deleted(void)
{
	int ready[2];
	pid_t pid[2];
	NEED(!pipe(ready));
	for (int i = 0; i < 2; i++) {
		pid[i] = neighbour(ready[1], i);
		hear(ready[0]);
	}
	use_device(0);
	close_region();
	NEED(left() == 24 * MIB && take(26 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	close_region();
	NEED(!unlink(getenv("PROBE_REGION")));
	NEED(left() == 24 * MIB && take(26 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	end_child(pid[0]);
	NEED(left() == 44 * MIB && take(46 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	end_child(pid[1]);
	NEED(left() == LIMIT && take(LIMIT) == CUDA_SUCCESS && left() == 0);
}
