/* SPDX-License-Identifier: Apache-2.0 */
/*
 * truth_test.c: random programs under the library, on the machine itself and in containers that
 * share one claim, and what the fake card itself counted as the only witness. A program is its
 * seed: VGPU_TRUTH_SEED runs it again and again, VGPU_TRUTH_FIRST draws the same ones again.
 * VGPU_TRUTH_SECONDS and VGPU_TRUTH_PROGRAMS say how long to go on, VGPU_TRUTH_GO_ON=1 after
 * failures, too, VGPU_TRUTH_SHRINK=1 makes a program that failed smaller, and
 * VGPU_TRUTH_ONLY=<text> believes only in failures whose message has that text.
 */
#define TEST_SECONDS 7200
#include "machine.h"

#include "state.h"
#include "truth_workers.h"
#include "truth_program.h"

#define PATIENCE_MS 60000 /* a program that does not get on for so long hangs */

/* Which line of the fake machine, as its own count numbers devices, CUDA's device is. */
static const int minor_of[TRUTH_DEVICES] = {1, 0};

static void check_peak(void)
{
	for (int i = 0; i < TRUTH_DEVICES; i++) {
		uint64_t high = __atomic_load_n(&fg_state()->device[minor_of[i]].used_high,
						__ATOMIC_RELAXED),
			 limit = board->program.limit[i];
		if (!limit || high <= limit)
			continue;
		total.over = high - limit > total.over ? high - limit : total.over;
		fail_program(
			"device %d: %llu bytes were used at one instant, %llu KiB over the limit",
			i, (unsigned long long)high, (unsigned long long)((high - limit) >> 10));
	}
}

/* The least number of rounds that a living worker has behind it; -2: none lives. */
static int least_arrived(void)
{
	int least = -2;
	for (int i = 0; i < board->program.processes; i++) {
		int arrived = __atomic_load_n(&board->worker[i].arrived, __ATOMIC_ACQUIRE);
		if (!__atomic_load_n(&board->worker[i].gone, __ATOMIC_ACQUIRE) &&
		    (least == -2 || arrived < least))
			least = arrived;
	}
	return least;
}

/*
 * Waits for `done`, killing at random when told to. Always ends: a program that stands still is
 * stopped.
 */
static void wait_until(int (*done)(int), int round, int may_kill, uint64_t *random)
{
	int64_t start = now_ms();
	while (!done(round) && !__atomic_load_n(&board->stop, __ATOMIC_ACQUIRE)) {
		reap();
		check_peak();
		if (may_kill && board->program.kills && truth_below(random, 50) == 0)
			kill_one(random);
		if (now_ms() - start > PATIENCE_MS)
			fail_program("the program stands still in round %d", round);
		usleep(1000);
	}
}

static int have_arrived(int round)
{
	int least = least_arrived();
	return least == -2 || least >= round;
}

static int is_settled(int round)
{
	(void)round;
	return now_ms() - board->killed_ms >= TRUTH_AFTER_A_DEATH_MS && !an_orphan_lives();
}

static int is_checked(int round)
{
	return __atomic_load_n(&board->checked, __ATOMIC_ACQUIRE) >= round ||
	       board->worker[board->checker].gone;
}

static int have_gone(int round)
{
	(void)round;
	for (int i = 0; i < TRUTH_WORKERS; i++)
		if (board->worker[i].pid && board->worker[i].gone != 2)
			return 0;
	stop_containers();
	return waitpid(-1, NULL, WNOHANG) < 0;
}

static void end_workers(uint64_t *random)
{
	int64_t start = now_ms();
	while (!have_gone(0)) {
		reap();
		check_peak();
		if (now_ms() - start > 10000)
			for (int i = 0; i < TRUTH_WORKERS; i++)
				if (board->worker[i].pid && board->worker[i].gone != 2) {
					fail_program("worker %d does not end", i);
					board->worker[i].gone = board->worker[i].killed = 1;
					kill(board->worker[i].pid, SIGKILL);
				}
		usleep(1000);
	}
	(void)random;
}

static void reset_peaks(void)
{
	fg_lock();
	for (int i = 0; i < TRUTH_DEVICES; i++)
		fg_reset_used_high(i);
	fg_unlock();
}

static void prepare(const struct truth_program *p)
{
	char limits[512];
	snprintf(limits, sizeof limits,
		 "vgpu-limits 1\nregion %s\ndevice 0 " U0 " memory=%llu cores=0\ndevice 1 " U1
		 " memory=%llu cores=0\n",
		 p->containers ? REGION_INSIDE : "%s/vgpu.cache", (unsigned long long)p->limit[0],
		 (unsigned long long)p->limit[1]);
	write_file("limits", limits);
	int64_t killed_ms = board->killed_ms;
	memset(board, 0, sizeof *board);
	board->killed_ms = killed_ms;
	board->program = *p;
	board->go = -1;
	for (int i = 0; i < TRUTH_WORKERS; i++)
		board->worker[i].arrived = -1;
	reset_peaks();
}

/* A living worker of a container; any of all without containers. -1: none. */
static int choose_checker(int c, uint64_t *random)
{
	for (int i = 0; i < board->program.processes && board->program.containers; i++)
		if (is_in_container(i, c) && board->worker[i].pid && !board->worker[i].gone)
			return i;
	return board->program.containers ? -1 : any_living(random);
}

/* A worker of each container looks whether the whole limit is to be had. 0: nobody lives. */
static int check_round(int round, uint64_t *random)
{
	int living = 0;
	for (int c = 0; c < (board->program.containers ? board->program.containers : 1); c++) {
		int checker = choose_checker(c, random);
		if (checker < 0 || board->stop)
			continue;
		living = 1;
		board->checker = checker; /* before `checked`, which lets it begin */
		__atomic_store_n(&board->checked, round - 1, __ATOMIC_RELEASE);
		__atomic_store_n(&board->check, round, __ATOMIC_RELEASE);
		wait_until(is_checked, round, 0, random);
	}
	return living;
}

/* Runs the board's program to its end. */
static void run_rounds(void)
{
	const struct truth_program *p = &board->program;
	uint64_t random = p->seed + 1;
	start_containers();
	for (int i = 0; i < (p->twins ? 1 : p->processes); i++)
		start_worker(i);
	wait_until(have_arrived, 0, 0, &random);
	total.namesakes += p->containers && have_namesakes();
	reset_peaks();
	__atomic_store_n(&board->go, 0, __ATOMIC_RELEASE);
	for (int round = 1; round <= p->rounds && !board->stop; round++) {
		wait_until(have_arrived, round, 1, &random);
		wait_until(is_settled, round, 0, &random);
		if (!check_round(round, &random) || board->stop)
			break;
		__atomic_store_n(&board->go, round, __ATOMIC_RELEASE);
	}
	end_workers(&random);
	check_peak();
}

static void add_up(void)
{
	total.calls += board->calls;
	total.refusals += board->refusals;
	total.judged += board->judged;
	total.falsely += board->falsely;
	total.late += board->late;
}

/* The call of a worker with a number; NULL when it has been overwritten. */
static const struct truth_call *call_of(const struct truth_worker *w, unsigned int order)
{
	for (int t = 0; t < TRUTH_THREADS; t++)
		for (int k = 0; k < TRUTH_CALLS; k++)
			if (w->call[t][k].order == order)
				return &w->call[t][k];
	return NULL;
}

static void print_calls(void)
{
	for (int i = 0; i < TRUTH_WORKERS; i++) {
		const struct truth_worker *w = &board->worker[i];
		int wanted = board->failed < 0 || board->failed - 1 == i;
		unsigned int first = w->calls < TRUTH_CALLS ? 1 : w->calls - TRUTH_CALLS + 1;
		for (unsigned int k = first; wanted && k <= w->calls; k++)
			if (call_of(w, k))
				printf("        worker %d %s\n", i, call_of(w, k)->text);
	}
}

/*
 * A program, and then a process, or one in each container, that finds everything to be had. 1 when
 * all was right.
 */
static int run_program(const struct truth_program *p, int quiet)
{
	char region[256];
	struct truth_program last = {.seed = p->seed,
				     .processes = p->containers ? p->containers : 1,
				     .containers = p->containers,
				     .threads = 1,
				     .rounds = 1,
				     .limit = {p->limit[0], p->limit[1]},
				     .context_mib = p->context_mib};
	snprintf(region, sizeof region, "%s/%svgpu.cache", dir, p->containers ? CLAIM "/" : "");
	unlink(region);
	prepare(p);
	run_rounds();
	add_up();
	if (!board->failed) {
		prepare(&last);
		run_rounds();
	}
	int failed = board->failed && (!getenv("VGPU_TRUTH_ONLY") ||
				       strstr(board->failure, getenv("VGPU_TRUTH_ONLY")));
	int alone = p->processes * p->threads == 1;
	int counted = failed && !alone && strstr(board->failure, "false refusal") != NULL;
	total.alone += alone ? board->falsely : 0;
	if (failed && !quiet) {
		print_program(p);
		printf("    %s\n", board->failure);
		print_calls();
	}
	return !failed || (counted && !getenv("VGPU_TRUTH_SHRINK"));
}

/* Whether a smaller program fails, too: then it takes the place of the larger one. */
static int fails_again(struct truth_program *p, struct truth_program smaller)
{
	for (int i = 0; i < 4; i++)
		if (!run_program(&smaller, 1)) {
			*p = smaller;
			return 1;
		}
	return 0;
}

/* Leaves out what the failure does not need: processes, threads, kills, rounds, kinds. */
static void shrink(struct truth_program p)
{
	int64_t end = now_ms() + 60000;
	struct truth_program s;
#define TRY(change)                 \
	do {                        \
		s = p;              \
		change;             \
		fails_again(&p, s); \
	} while (0)
	TRY(s.kills = 0);
	TRY((s.processes = 1, s.twins = s.containers = 0));
	TRY(s.threads = 1);
	TRY(s.threads = 2);
	TRY(s.rounds = 1);
	TRY(s.twins = 0);
	for (int i = 0; i < KIND_NODE && now_ms() < end; i++)
		if (p.kinds & 1u << i && p.kinds != 1u << i)
			TRY(s.kinds &= ~(1u << i));
	for (int i = 0; i < 6 && p.steps > 8 && now_ms() < end; i++)
		TRY(s.steps /= 2);
#undef TRY
	printf("    shrunk to:\n");
	for (int i = 0; i < 8; i++)
		if (!run_program(&p, 0))
			return;
	print_program(&p);
}

static void report(int64_t since)
{
	printf("    %4lld s: %llu programs, %llu calls, %llu refusals, %llu of them judged, %llu "
	       "false, %llu bytes over a limit, %llu kills, %llu crashes of containers, "
	       "%llu refusals soon after one, PIDs met twice in %llu runs, %llu failures\n",
	       (long long)(now_ms() - since) / 1000, (unsigned long long)total.programs,
	       (unsigned long long)total.calls, (unsigned long long)total.refusals,
	       (unsigned long long)total.judged, (unsigned long long)total.falsely,
	       (unsigned long long)total.over, (unsigned long long)total.kills,
	       (unsigned long long)total.crashes, (unsigned long long)total.late,
	       (unsigned long long)total.namesakes, (unsigned long long)total.failures);
}

static void run_seeds(uint64_t seconds)
{
	uint64_t most = number_from("VGPU_TRUTH_PROGRAMS", UINT64_MAX);
	uint64_t one = number_from("VGPU_TRUTH_SEED", 0),
		 random = number_from("VGPU_TRUTH_FIRST", (uint64_t)time(NULL));
	int64_t start = now_ms(), told = start;
	printf("    VGPU_TRUTH_FIRST=%llu\n", (unsigned long long)random);
	while (now_ms() - start < (int64_t)seconds * 1000 && total.programs < most) {
		struct truth_program p;
		draw_program(&p, one ? one : truth_random(&random));
		total.programs++;
		if (!run_program(&p, 0)) {
			total.failures++;
			if (getenv("VGPU_TRUTH_SHRINK"))
				shrink(p);
			if (!getenv("VGPU_TRUTH_GO_ON"))
				break;
		}
		if (now_ms() - told >= 10000) {
			told = now_ms();
			report(start);
		}
	}
	report(start);
}

/*
 * With threads the instant of a refusal is not known to the oracle, only the highest sum during the
 * call. A refusal that it cannot explain is printed and counted, and fails the test when it is not
 * rare.
 */
#define RARE 50000
#define FEW 4 /* one program that relaunches graphs may meet several in a short run */

static void run_and_judge(uint64_t seconds)
{
	char path[256], error[512];
	snprintf(path, sizeof path, "%s/board", dir);
	int fd = open(path, O_RDWR | O_CREAT, 0666);
	CHECK(fd >= 0 && !ftruncate(fd, sizeof *board) && !prctl(PR_SET_CHILD_SUBREAPER, 1));
	board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(board != MAP_FAILED);
	if (fg_state_open(dir, error, sizeof error))
		printf("    %s\n", error);
	CHECK(fg_state() != NULL);
	if (!test_failed_checks)
		run_seeds(number_from("VGPU_TRUTH_SECONDS", seconds));
	CHECK_EQ(total.failures, 0);
	CHECK_EQ(total.over, 0);
	CHECK_EQ(total.alone, 0); /* a program with one thread is never refused falsely */
	CHECK(total.falsely <= FEW + total.judged / RARE);
	done();
}

TEST("random programs of every call that allocates are held to the byte, never refused falsely, "
     "and leave all of the limit")
{
	unsetenv("VGPU_TRUTH_CONTAINERS");
	machine(NULL);
	run_and_judge(60);
}

TEST("containers of one claim run such programs on one budget, though each has PIDs of its own")
{
	setenv("VGPU_TRUTH_CONTAINERS", "3", 0);
	machine("vgpu-limits 1\n");
	if (containers_are_possible())
		run_and_judge(7000);
	else
		done();
	CHECK(!total.programs || total.namesakes);
}

TEST_MAIN
