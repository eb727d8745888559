/* SPDX-License-Identifier: Apache-2.0 */
/*
 * truth_workers.h: the worker processes of the truth test: starting, killing and waiting for them,
 * on the machine itself or in containers that share one claim. Include it once, after machine.h.
 */
#include <stdarg.h>
#include <sys/mman.h>
#include <time.h>

#include "containers.h"
#include "truth_board.h"

static struct truth_board *board;
static struct {
	uint64_t programs, failures, calls, refusals, judged, falsely, alone, late, kills, crashes, namesakes, over;
} total;
static struct container box[CONTAINERS]; /* worker i runs in the one of i modulo their number */

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

__attribute__((format(printf, 1, 2))) static void fail_program(const char *format, ...)
{
	va_list args;
	int nobody = 0;
	if (__atomic_compare_exchange_n(&board->failed, &nobody, -1, 0, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE)) {
		va_start(args, format);
		vsnprintf(board->failure, sizeof board->failure, format, args);
		va_end(args);
	}
	__atomic_store_n(&board->stop, 1, __ATOMIC_RELEASE);
}

/* What a driver does with a list that it refuses, and with a range that cuts a mapping. */
static const char *const sparse_answers[] = {"part", "whole"};
static const char *const unmap_answers[] = {"keep", "cut", "refuse"};

static void start_worker(int index)
{
	char path[256], text[32], number[16], log[256], board_path[256], limits[256];
	int containers = board->program.containers;
	snprintf(path, sizeof path, "%s/test/test/probe_truth", getenv("VGPU_TEST_BUILD"));
	snprintf(text, sizeof text, "%d", index);
	snprintf(number, sizeof number, "%d", board->program.context_mib);
	fflush(stdout);
	pid_t pid = containers ? container_fork(&box[index % containers]) : fork();
	if (pid < 0)
		fail_program("worker %d does not start: %s", index, strerror(errno));
	if (pid > 0 && containers)
		board->worker[index].pid = pid;
	if (pid)
		return;
	snprintf(log, sizeof log, "%s/log", dir);
	int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0666);
	dup2(fd, 1);
	dup2(fd, 2);
	snprintf(board_path, sizeof board_path, "%s/board", dir);
	snprintf(limits, sizeof limits, "%s/limits", dir);
	become(getenv("VGPU_TEST_PRELOAD"), (char *const[]){path, board_path, text, NULL},
	       (const char *const[]){"FAKEGPU_CONTEXT", number, "LIBCUDA_LOG_LEVEL", "0",
				     "HAMICORE_TEST_LIMITS", containers ? LIMITS_INSIDE : limits,
				     "FAKEGPU_SPARSE", sparse_answers[board->program.sparse],
				     "FAKEGPU_UNMAP", unmap_answers[board->program.unmap], NULL});
}

/* The container whose PID 1 this is, NULL: none. */
static struct container *container_of(pid_t init)
{
	for (int i = 0; i < CONTAINERS; i++)
		if (box[i].init == init)
			return &box[i];
	return NULL;
}

/* Notes who has ended. One that nobody has killed must have ended well. */
static void reap(void)
{
	int status;
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		int i = 0;
		if (container_of(pid)) {
			container_forget(container_of(pid));
			continue;
		}
		while (i < TRUTH_WORKERS && board->worker[i].pid != pid)
			i++;
		int expected = i < TRUTH_WORKERS && board->worker[i].killed;
		if (i < TRUTH_WORKERS)
			board->worker[i].gone = 2;
		if (status && !expected)
			fail_program("worker %d ended with %s %d", i,
				     WIFSIGNALED(status) ? "signal" : "code",
				     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	}
}

static int any_living(uint64_t *random)
{
	int first = (int)truth_below(random, TRUTH_WORKERS);
	for (int k = 0; k < TRUTH_WORKERS; k++) {
		int i = (first + k) % TRUTH_WORKERS;
		if (i < board->program.processes && board->worker[i].pid && !board->worker[i].gone)
			return i;
	}
	return -1;
}

static void note_death(void)
{
	__atomic_store_n(&board->killed_ms, now_ms(), __ATOMIC_RELEASE);
}

static void kill_worker(int i)
{
	board->worker[i].gone = board->worker[i].killed = 1;
	note_death();
	kill(board->worker[i].pid, SIGKILL);
	while (board->worker[i].gone == 1) {
		reap();
		usleep(100);
	}
	note_death();
	total.kills++;
}

static void start_container(int c)
{
	int error = container_start(&box[c]);
	if (error)
		fail_program("container %d does not start: %s", c, strerror(error));
}

static int is_in_container(int worker, int c)
{
	return worker < board->program.processes && worker % board->program.containers == c;
}

/* Kills all processes of a container at once, as a crash of it does. */
static void crash_container(int c)
{
	for (int i = 0; i < TRUTH_WORKERS; i++)
		if (is_in_container(i, c) && !board->worker[i].gone)
			board->worker[i].gone = board->worker[i].killed = 1;
	note_death();
	container_kill(&box[c]);
	while (box[c].init) {
		reap();
		usleep(100);
	}
	note_death();
	total.crashes++;
}

/*
 * Starts a container again, as the kubelet does: the PIDs are those of the dead. Its workers do all
 * rounds from the first.
 */
static void restart_container(int c)
{
	start_container(c);
	for (int i = 0; i < TRUTH_WORKERS; i++)
		if (is_in_container(i, c)) {
			memset(&board->offer[i], 0, sizeof board->offer[i]);
			memset(&board->worker[i], 0, sizeof board->worker[i]);
			board->worker[i].arrived = -1;
			start_worker(i);
		}
}

#define RESTARTS 2 /* in a program, so that it ends */

static void kill_one(uint64_t *random)
{
	static uint64_t seed;
	static int restarts;
	int i = any_living(random);
	if (i < 0)
		return;
	if (seed != board->program.seed)
		restarts = 0;
	seed = board->program.seed;
	if (!board->program.containers || truth_below(random, 3)) {
		kill_worker(i);
		return;
	}
	int c = i % board->program.containers;
	crash_container(c);
	/* the memory of contexts cannot be refused: none is made while others have the limit */
	if (!board->program.context_mib && restarts++ < RESTARTS)
		restart_container(c);
}

/* The containers of a program. Their PID 1 end when nobody else is in them. */
static void start_containers(void)
{
	for (int c = 0; c < board->program.containers; c++)
		start_container(c);
}

static void stop_containers(void)
{
	for (int c = 0; c < CONTAINERS; c++)
		if (box[c].init) {
			container_kill(&box[c]);
			waitpid(box[c].init, NULL, 0);
			container_forget(&box[c]);
		}
}

/* Whether two living workers have the same PID, each in its container. */
static int have_namesakes(void)
{
	for (int i = 0; i < TRUTH_WORKERS; i++)
		for (int k = 0; k < i; k++)
			if (board->worker[i].inside && !board->worker[i].gone && !board->worker[k].gone &&
			    board->worker[i].inside == board->worker[k].inside)
				return 1;
	return 0;
}

static int is_worker(int pid)
{
	for (int i = 0; i < TRUTH_WORKERS; i++)
		if (board->worker[i].pid == pid)
			return 1;
	return 0;
}

/*
 * Whether a child of a killed worker lives, which is ours then. Until it has run for the first time
 * it keeps what its parent had open, and on a busy machine that may take seconds.
 */
static int an_orphan_lives(void)
{
	int pid, found = 0;
	char path[64];
	snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
	FILE *f = fopen(path, "r");
	while (f && fscanf(f, "%d", &pid) == 1)
		found |= !is_worker(pid) && !container_of(pid);
	if (f)
		fclose(f);
	for (int c = 0; c < CONTAINERS; c++)
		found |= container_has_orphan(&box[c]);
	return found;
}
