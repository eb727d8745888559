/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cuda_timeline.h"

#define MAGIC 0x314b434f4c434746ULL /* "FGCLOCK1" */
#define START_NS 1000000000000ULL
#define LOST_SECONDS 120 /* of real time: the process whose turn it is has died */

struct place {
	uint64_t wake_ns; /* 0: not come yet; UINT64_MAX: gone */
	pthread_cond_t turn;
};

struct clock {
	uint64_t magic;
	pthread_mutex_t mutex;
	uint64_t now_ns;
	int running; /* the place whose turn it is; -1 before all have come */
	struct place place[FG_PLACES];
	struct fg_timeline timeline[FG_MAX_DEVICES];
};

static struct {
	struct clock *clock;
	int place, count;
	pid_t pid;
	int has_heir; /* another process comes to this place when this one has left */
} self = {.place = -1};

static void make(struct clock *c)
{
	pthread_mutexattr_t m;
	pthread_condattr_t a;
	pthread_mutexattr_init(&m);
	pthread_mutexattr_setpshared(&m, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&c->mutex, &m);
	pthread_condattr_init(&a);
	pthread_condattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	for (int i = 0; i < FG_PLACES; i++)
		pthread_cond_init(&c->place[i].turn, &a);
	c->now_ns = START_NS;
	c->running = -1;
	c->magic = MAGIC;
}

static struct clock *map(const char *dir)
{
	char path[512];
	snprintf(path, sizeof path, "%s/clock", dir);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0 || ftruncate(fd, sizeof(struct clock)))
		return NULL;
	struct clock *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return c == MAP_FAILED ? NULL : c;
}

/*
 * Gives the turn to who wakes first, and moves the time there (needs the mutex). Nobody, while one
 * has not come.
 */
static void pass(struct clock *c)
{
	int first = 0;
	for (int i = 0; i < self.count; i++) {
		if (!c->place[i].wake_ns)
			return;
		if (c->place[i].wake_ns < c->place[first].wake_ns)
			first = i;
	}
	if (c->place[first].wake_ns == UINT64_MAX)
		return;
	c->now_ns = c->place[first].wake_ns;
	if (first != c->running)
		pthread_cond_signal(&c->place[first].turn);
	c->running = first;
}

/* Waits for this process's turn; ends the process when the clock stands still (needs the mutex). */
static void wait_for_turn(struct clock *c)
{
	struct timespec limit;
	uint64_t before = 0;
	while (c->running != self.place) {
		/* others work: many of them may take long in real time */
		if (before != c->now_ns) {
			before = c->now_ns;
			clock_gettime(CLOCK_REALTIME, &limit);
			limit.tv_sec += LOST_SECONDS;
		}
		if (pthread_cond_timedwait(&c->place[self.place].turn, &c->mutex, &limit) &&
		    before == c->now_ns) {
			fprintf(stderr, "fake libcuda: the clock stands still: a process of it has "
					"not come, or died in its turn\n");
			_exit(70);
		}
	}
}

/* Says when this process wakes next, and waits for its turn. */
static void wait_until(uint64_t ns)
{
	struct clock *c = self.clock;
	pthread_mutex_lock(&c->mutex);
	c->place[self.place].wake_ns = ns > c->now_ns ? ns : c->now_ns;
	pass(c);
	wait_for_turn(c);
	pthread_mutex_unlock(&c->mutex);
}

__attribute__((destructor)) void fg_clock_leave(void)
{
	struct clock *c = self.clock;
	if (!c || self.pid != getpid()) /* a forked child has no place */
		return;
	pthread_mutex_lock(&c->mutex);
	c->place[self.place].wake_ns = self.has_heir ? 0 : UINT64_MAX;
	pass(c);
	pthread_mutex_unlock(&c->mutex);
	self.clock = NULL;
}

void fg_clock_expect_heir(void)
{
	self.has_heir = 1;
}

int fg_clock_open(const char *dir, char *error, size_t size)
{
	const char *text = getenv("FAKEGPU_CLOCK");
	int place, count, end = 0;
	if (!text || self.clock)
		return 0;
	if (sscanf(text, "%d/%d%n", &place, &count, &end) != 2 || text[end] || place < 0 ||
	    place >= count || count > FG_PLACES)
		return snprintf(error, size,
				"FAKEGPU_CLOCK=%.20s: want <place>/<count>, as in 0/2, at most %d",
				text, FG_PLACES),
		       -1;
	struct clock *c = map(dir);
	if (!c)
		return snprintf(error, size, "%s/clock: %s", dir, strerror(errno)), -1;
	fg_lock();
	if (c->magic != MAGIC)
		make(c);
	fg_unlock();
	self.pid = getpid();
	self.place = place;
	self.count = count;
	self.clock = c;
	wait_until(START_NS);
	return 0;
}

int fg_clock_place(void)
{
	return self.place;
}

struct fg_timeline *fg_clock_timelines(void)
{
	return self.clock->timeline;
}

/* Whether this process waits for a clock of the tests' own; one look at the environment. */
static int has_clock_to_come(void)
{
	static int known; /* 1 + the answer */
	int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
	if (!answer) {
		answer = 1 + (getenv("FAKEGPU_CLOCK") != NULL);
		__atomic_store_n(&known, answer, __ATOMIC_RELAXED);
	}
	return answer - 1;
}

uint64_t fg_clock_now(void)
{
	if (self.clock)
		return self.clock->now_ns;
	return has_clock_to_come() ? START_NS : fg_now_ns();
}

void fg_clock_sleep_until(uint64_t ns)
{
	if (self.clock)
		return wait_until(ns);
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000ULL),
			     .tv_nsec = (long)(ns % 1000000000ULL)};
	while (!has_clock_to_come() &&
	       clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
		;
}

/*
 * What FAKEGPU_STALL=<one call in so many>/<at most so many microseconds> says; nothing without it.
 */
static struct {
	unsigned one_in;
	uint64_t most_ns;
	uint32_t seed;
} stall;

static void read_stall(void)
{
	const char *text = getenv("FAKEGPU_STALL");
	unsigned long us;
	if (text && sscanf(text, "%u/%lu", &stall.one_in, &us) == 2)
		stall.most_ns = us * 1000;
	stall.seed = (uint32_t)self.place + 1;
}

static uint64_t draw(uint64_t below)
{
	stall.seed = stall.seed * 1664525u + 1013904223u;
	return (stall.seed >> 8) % below;
}

/* How long this process is not let run now. */
static uint64_t held_up(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, read_stall);
	return stall.one_in && stall.most_ns && !draw(stall.one_in) ? draw(stall.most_ns) : 0;
}

void fg_clock_spend(uint64_t ns)
{
	if (self.clock)
		wait_until(self.clock->now_ns + ns + held_up());
}

void fg_clock_return(void)
{
	uint64_t ns = self.clock ? held_up() : 0;
	if (ns)
		wait_until(self.clock->now_ns + ns);
}
