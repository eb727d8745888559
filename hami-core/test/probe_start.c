/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_start.c: programs that start others, change their user or name, or find a strange region.
 */
#define _GNU_SOURCE
#include "probe.h"

#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hamicore_abi.h"

extern char **environ;

/* The rest of a program that was started by another: 44 MiB are left for it, and no more. */
static void second_life(void)
{
	use_device(0);
	NEED(left() == 44 * MIB && take(46 * MIB) == CUDA_ERROR_OUT_OF_MEMORY && take(44 * MIB) == CUDA_SUCCESS);
}

/* fork and exec, posix_spawn, vfork and exec: children are limited together with their parent. */
void probe_spawned(void)
{
	char *argv[] = {"/proc/self/exe", "spawned", NULL};
	int status;
	pid_t pid;
	if (getenv("PROBE_SECOND")) {
		second_life();
		return;
	}
	use_device(0);
	NEED(take(20 * MIB) == CUDA_SUCCESS);
	setenv("PROBE_SECOND", "1", 1);
	for (int way = 0; way < 3; way++) {
		if (way == 0)
			NEED(!posix_spawn(&pid, argv[0], NULL, NULL, argv, environ));
		else if ((pid = way == 1 ? fork() : vfork()) == 0)
			execv(argv[0], argv), _exit(127);
		NEED(waitpid(pid, &status, 0) == pid && status == 0);
		NEED(left() == 44 * MIB);
	}
}

void probe_two_race(void)
{
	int got[2], status;
	pid_t pid[2];
	for (int round = 0; round < 20; round++) {
		long n, sum = 0;
		NEED(!pipe(got));
		for (int i = 0; i < 2; i++)
			if ((pid[i] = fork()) == 0) {
				use_device(0);
				for (n = 0; take(2 * MIB) == CUDA_SUCCESS; n++)
					;
				NEED(write(got[1], &n, sizeof n) == sizeof n);
				pause();
			}
		for (int i = 0; i < 2; i++) {
			NEED(read(got[0], &n, sizeof n) == sizeof n);
			sum += n;
		}
		for (int i = 0; i < 2; i++) {
			kill(pid[i], SIGKILL); /* both have held what they got until now */
			NEED(waitpid(pid[i], &status, 0) == pid[i] && WIFSIGNALED(status));
		}
		close(got[0]), close(got[1]);
		NEED(sum == 32);
	}
}

/*
 * Root makes the region; the same process as another user, and another user's child, share its
 * limit.
 */
void probe_user_change(void)
{
	int status;
	use_device(0);
	NEED(take(20 * MIB) == CUDA_SUCCESS);
	NEED(!setegid(12345) && !seteuid(12345));
	NEED(left() == 44 * MIB && take(2 * MIB) == CUDA_SUCCESS);
	NEED(!seteuid(0) && !setegid(0));
	pid_t pid = fork();
	if (pid == 0) {
		setenv("PROBE_SECOND", "1", 1);
		NEED(!setgid(12345) && !setuid(12345));
		execl("/proc/self/exe", "probe", "user-change-child", (char *)NULL);
		_exit(127);
	}
	NEED(waitpid(pid, &status, 0) == pid && status == 0);
	NEED(left() == 42 * MIB);
}

void probe_user_change_child(void)
{
	use_device(0);
	NEED(left() == 42 * MIB && take(44 * MIB) == CUDA_ERROR_OUT_OF_MEMORY && take(42 * MIB) == CUDA_SUCCESS);
}

/* A child with `mib` MiB that lives until it is killed. */
static pid_t holds(int mib)
{
	int ready[2];
	char c;
	NEED(!pipe(ready));
	pid_t pid = fork();
	if (pid == 0) {
		use_device(0);
		NEED(take((uint64_t)mib * MIB) == CUDA_SUCCESS && write(ready[1], "x", 1) == 1);
		for (;;)
			pause();
	}
	NEED(read(ready[0], &c, 1) == 1);
	close(ready[0]), close(ready[1]);
	return pid;
}

static void dies(pid_t pid)
{
	kill(pid, SIGKILL);
	NEED(waitpid(pid, NULL, 0) == pid);
}

/* MiB that a new process finds free, after having been refused more. */
static uint64_t free_for_another(void)
{
	int out[2], status;
	uint64_t mib = 0;
	NEED(!pipe(out));
	pid_t pid = fork();
	if (pid == 0) {
		use_device(0);
		mib = left() / MIB;
		NEED(take(left() + 1) == CUDA_ERROR_OUT_OF_MEMORY && write(out[1], &mib, sizeof mib) == sizeof mib);
		exit(0);
	}
	NEED(waitpid(pid, &status, 0) == pid && status == 0 && read(out[0], &mib, sizeof mib) == sizeof mib);
	close(out[0]), close(out[1]);
	return mib;
}

/* Processes come and go in any order; what the others hold is counted all the time. */
void probe_slots_stay(void)
{
	pid_t a = holds(10), b = holds(20), c = holds(4), d;
	for (int i = 0; i < 5; i++) {
		dies(a);
		NEED(free_for_another() == 40);
		d = holds(30);
		NEED(free_for_another() == 10);
		dies(d);
		a = holds(10);
		NEED(free_for_another() == 30);
	}
	dies(c), dies(b);
	NEED(free_for_another() == 54);
	dies(a);
	NEED(free_for_another() == 64);
}

static int signals_seen;

static void on_signal(int number)
{
	(void)number;
	signals_seen++;
}

/* CUDA or not: signals, umask and environment are the program's. */
void probe_signals(void)
{
	struct sigaction mine = {.sa_handler = on_signal}, found;
	mode_t mask = umask(027);
	char **before = environ;
	int variables = 0, after = 0;
	for (char **e = environ; *e; e++)
		variables++;
	for (int number = 1; number < 32; number++)
		if (number != SIGKILL && number != SIGSTOP && number != SIGALRM)
			NEED(!sigaction(number, &mine, NULL));
	use_device(0);
	NEED(take(10 * MIB) == CUDA_SUCCESS && take(60 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	for (int number = 1; number < 32; number++)
		if (number != SIGKILL && number != SIGSTOP && number != SIGALRM)
			NEED(!sigaction(number, NULL, &found) && found.sa_handler == on_signal);
	NEED(!raise(SIGUSR1) && !raise(SIGUSR2) && !raise(SIGTERM) && signals_seen == 3);
	for (char **e = environ; *e; e++)
		after++;
	NEED(environ == before && variables == after && umask(mask) == 027);
}

/* Monitors see a process that has no limit, too. */
void probe_told(void)
{
	use_device(0);
	NEED(take(10 * MIB) == CUDA_SUCCESS);
	const struct hami_region *r = &probe_region()->hami;
	NEED(r->proc_num == 1 && r->procs[0].status == 1 && r->procs[0].pid == getpid() && r->procs[0].used[0].total == 10 * MIB);
	NEED(!strncmp(r->uuid[0], "GPU-00000000", 12) && r->device_num >= 1);
}

/* Who reads /proc/<pid>/stat by words takes this process for one in state R, or for dead. */
void probe_odd_name(void)
{
	int ready[2], status;
	char c;
	NEED(!pipe(ready));
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_NAME, "a b) Z 1 (c");
		use_device(0);
		NEED(take(40 * MIB) == CUDA_SUCCESS && write(ready[1], "x", 1) == 1);
		for (;;)
			pause();
	}
	NEED(read(ready[0], &c, 1) == 1);
	use_device(0);
	NEED(take(26 * MIB) == CUDA_ERROR_OUT_OF_MEMORY && left() == 24 * MIB); /* alive */
	kill(pid, SIGKILL);
	NEED(waitpid(pid, &status, 0) == pid);
	NEED(left() == 64 * MIB && take(64 * MIB) == CUDA_SUCCESS); /* dead */
}

/*
 * A process died while it wrote its slot the old way, and while it held the old semaphores: nobody
 * waits for them.
 */
void probe_odd_sequence(void)
{
	use_device(0);
	NEED(take(10 * MIB) == CUDA_SUCCESS);
	struct vgpu_region *r = probe_region();
	for (int i = 0; i < HAMI_PROCESSES; i++)
		r->hami.procs[i].sequence = 1;
	memset(r->hami.semaphore, 0, sizeof r->hami.semaphore);
	memset(r->hami.semaphore_postinit, 0, sizeof r->hami.semaphore_postinit);
	r->hami.owner_pid = 4000000;
	alarm(5);
	NEED(left() == 54 * MIB && take(54 * MIB) == CUDA_SUCCESS && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
	pid_t pid = fork();
	if (pid == 0) {
		execl("/proc/self/exe", "probe", "full", (char *)NULL);
		_exit(127);
	}
	int status;
	NEED(waitpid(pid, &status, 0) == pid && status == 0);
}

void probe_generation_full(void)
{
	use_device(0);
	NEED(left() == 0 && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
}
