/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attacked.h: a container whose processes, up to 8, take and give memory (probe_hostile.c) while a
 * test does something to them or their region. They are watched, and what the fake card says it
 * has given each is compared with the limit. Include it once, first.
 */
#define TEST_SECONDS 900
#include "machine.h"

#include <sys/mman.h>
#include <time.h>

#include "hamicore_abi.h"
#include "hostile.h"
#include "state.h"

#define MIB (1ULL << 20)
#define LIMIT (64 * MIB)
#define LIMITED_MINOR 1 /* U0 in the topology of machine.h */

static struct hostile_board *board;
static struct vgpu_region *region;
static pid_t worker[HOSTILE_WORKERS];
static char region_path[256], board_path[256];

static struct {
	unsigned corruptions, started, killed, stopped;
	uint64_t most, sum; /* that a process, and that all, had of the card at an instant */
} seen;

static int is_long(void)
{
	return getenv("VGPU_HOSTILE") != NULL;
}

/* Milliseconds that a process waits for others. Where that is waited for, a short run has fewer. */
static uint64_t patience_ms = 10000;

static void shorten_patience(void)
{
	patience_ms = is_long() ? 10000 : 300;
}

/* Whether no call took longer than patience allows; a busy machine may make it later. */
static int in_time(uint64_t longest_ms)
{
	return longest_ms <= patience_ms + (is_long() ? 500 : 2000);
}

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void *map_at(const char *path, size_t size, int flags)
{
	struct stat st;
	int fd = open(path, O_RDWR | flags, 0666);
	if (fd >= 0 && flags)
		CHECK(!ftruncate(fd, (off_t)size));
	void *at = MAP_FAILED;
	if (fd >= 0 && !fstat(fd, &st) && (size_t)st.st_size >= size)
		at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	return at == MAP_FAILED ? NULL : at;
}

static void start_worker(int place)
{
	char path[256], number[16], patience[16];
	snprintf(path, sizeof path, "%s/test/test/probe", getenv("VGPU_TEST_BUILD"));
	snprintf(number, sizeof number, "%d", place);
	snprintf(patience, sizeof patience, "%llu", (unsigned long long)patience_ms);
	const char *variables[] = {
		"PROBE_BOARD", board_path, "PROBE_PLACE", number, "LIBCUDA_LOG_LEVEL", "0",
		"HAMICORE_TEST_PATIENCE_MS", patience, NULL};
	board->worker[place].since_ns = 0;
	fflush(stdout);
	seen.started++;
	worker[place] = fork();
	if (worker[place] == 0)
		become(getenv("VGPU_TEST_PRELOAD"), (char *const[]){path, (char *)"hostile", NULL},
		       variables);
}

/* The calls that a process has made. */
static uint64_t calls_of(int place)
{
	return __atomic_load_n(&board->worker[place].operations, __ATOMIC_RELAXED);
}

static uint64_t operations(void)
{
	uint64_t sum = 0;
	for (int i = 0; i < HOSTILE_WORKERS; i++)
		sum += calls_of(i);
	return sum;
}

/* Waits until a process has made so many calls. */
static void await(int place, uint64_t calls)
{
	for (int i = 0; i < 5000 && calls_of(place) < calls; i++)
		usleep(2000);
	CHECK(calls_of(place) >= calls);
}

/* A container with so many processes at work. */
static void begin(int workers)
{
	machine(LIMITS);
	memset(&seen, 0, sizeof seen);
	memset(worker, 0, sizeof worker);
	snprintf(region_path, sizeof region_path, "%s/vgpu.cache", dir);
	snprintf(board_path, sizeof board_path, "%s/board", dir);
	board = map_at(board_path, sizeof *board, O_CREAT);
	CHECK(board != NULL);
	board->limit = LIMIT;
	for (int i = 0; i < workers; i++)
		start_worker(i);
	for (int i = 0; i < workers; i++)
		await(i, 10);
	region = map_at(region_path, sizeof *region, 0);
	CHECK(region != NULL);
}

/* Fails the test for a process that has ended by itself, or whose call takes too long. */
static void look_at(int place)
{
	int status;
	if (!worker[place])
		return;
	uint64_t since = __atomic_load_n(&board->worker[place].since_ns, __ATOMIC_ACQUIRE);
	uint64_t time = now();
	if (since && time > since && time - since > (patience_ms + 3000) * 1000000) {
		printf("    process %d hangs since %.1f s\n", place, (double)(time - since) / 1e9);
		test_failed_checks++;
		kill(worker[place], SIGKILL);
		waitpid(worker[place], &status, 0);
	} else if (waitpid(worker[place], &status, WNOHANG) == worker[place]) {
		printf("    process %d ended by itself with status %#x after %u corruptions\n",
		       place, (unsigned)status, seen.corruptions);
		test_failed_checks++;
	} else {
		return;
	}
	start_worker(place);
}

/* Whether it is one of ours: the card notices deaths when it is asked for memory next. */
static int lives(const struct fg_process *p)
{
	int found = 0;
	for (int i = 0; i < HOSTILE_WORKERS; i++)
		found |= worker[i] && p->pid == (uint32_t)worker[i];
	return found && p->in_use;
}

/* What the card has given, to each and to all. */
static void look_at_card(void)
{
	static struct fg_state *card;
	static char of[128];
	char path[256];
	uint64_t sum = 0;
	snprintf(path, sizeof path, "%s/state", dir);
	if (strcmp(of, dir))
		card = map_at(path, sizeof *card, 0);
	snprintf(of, sizeof of, "%s", dir);
	CHECK(card != NULL);
	for (uint64_t i = 0; card && i < card->high && i < FG_MAX_PROCESSES; i++) {
		uint64_t used = lives(&card->process[i]) ? card->process[i].used[LIMITED_MINOR] : 0;
		sum += used;
		seen.most = used > seen.most ? used : seen.most;
	}
	seen.sum = sum > seen.sum ? sum : seen.sum;
}

static void watch(uint64_t ms)
{
	for (uint64_t until = now() + ms * 1000000; now() < until; usleep(1000)) {
		for (int i = 0; i < HOSTILE_WORKERS; i++)
			look_at(i);
		look_at_card();
	}
}

static void kill_worker(int place)
{
	kill(worker[place], SIGKILL);
	waitpid(worker[place], NULL, 0);
	worker[place] = 0;
	seen.killed++;
}

static void print_figures(uint64_t longest, uint64_t refusals, uint64_t over)
{
	printf("    %u corruptions, %u processes started, %u killed, %u stopped; %llu calls "
	       "meanwhile, %llu refused, the longest %.3f s\n",
	       seen.corruptions, seen.started, seen.killed, seen.stopped,
	       (unsigned long long)operations(), (unsigned long long)refusals,
	       (double)longest / 1e9);
	printf("    over the limit: %llu; the card gave a process %llu MiB at most, all together "
	       "%llu MiB, of %llu\n",
	       (unsigned long long)over, (unsigned long long)(seen.most / MIB),
	       (unsigned long long)(seen.sum / MIB), (unsigned long long)(LIMIT / MIB));
}

/* Ends all; the longest call in milliseconds. */
static uint64_t end(void)
{
	uint64_t longest = 0, over = 0, refusals = 0;
	int status;
	__atomic_store_n(&board->stop, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < HOSTILE_WORKERS; i++) {
		const struct hostile_worker *w = &board->worker[i];
		if (worker[i])
			CHECK(waitpid(worker[i], &status, 0) == worker[i] && status == 0);
		worker[i] = 0;
		over += w->over;
		refusals += w->refusals;
		longest = w->longest_ns > longest ? w->longest_ns : longest;
	}
	print_figures(longest, refusals, over);
	CHECK_EQ(over, 0);
	CHECK(seen.most <= LIMIT);
	__atomic_store_n(&board->stop, 0, __ATOMIC_RELEASE);
	return longest / 1000000;
}
