/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fair_test.c: containers of 1 to 16 processes with kernels of 20 us to 20 ms get the share that
 * they ask for, alone and beside a neighbour, under the library on the fake driver's clock.
 * VGPU_SHARES=1 runs the whole table, else a part of it.
 */
#define TEST_SECONDS 1800
#include "tenants.h"

#define POINTS 2.0
#define SECONDS 5
#define SMALL 30
#define LARGE 70

static const int kernels[] = {20, 200, 1400, 8000, 20000}; /* microseconds */
static const int counts[] = {1, 2, 4, 8, 16};
#define KERNELS (int)(sizeof kernels / sizeof *kernels)
#define COUNTS (int)(sizeof counts / sizeof *counts)

struct run {
	/*
	 * microseconds; processes of the container with 30 % and of the one with 70 %, 0 = it is
	 * not there
	 */
	int kernel, small, large;
	/* whether they can lend; microseconds that a change of tenant takes */
	int files, change;
	int waits; /* the small one waits for each kernel */
};

static struct tenant t[TENANTS];
static int apart; /* the small one's processes are in containers of their own, on one claim */

/*
 * Where docs/laboratory.md argues why a share cannot be within POINTS of what is asked:
 * it must not be less than is argued there.
 */
static const struct argued {
	struct run run;
	double small, large; /* percent that each gets at least */
} argued[] = {
	/* a kernel that overlaps the next one's start pays a change for each slice of both */
	{{.kernel = 20000, .small = 16, .large = 16, .files = 1, .change = 200}, 28, 67},
};

static const struct argued *argued_for(const struct run *r)
{
	for (size_t i = 0; i < sizeof argued / sizeof *argued; i++) {
		const struct run *a = &argued[i].run;
		if (a->kernel == r->kernel && a->small == r->small && a->large == r->large &&
		    a->files == r->files && a->change == r->change && a->waits == r->waits)
			return &argued[i];
	}
	return NULL;
}

/*
 * What is left of 70 % beside 30 % where changes cost time and no files tell the containers of each
 * other: the small one's work comes in pieces of a millisecond and more, as its balance allows, and
 * each piece is two changes.
 */
static double large_share(const struct run *r)
{
	return r->files ? LARGE : 100 - SMALL - SMALL * 2 * r->change / 1200.0;
}

/* Prints a share and checks it; `argued_least`: what it has at least, where that is argued. */
static void expect(double least, double most, double argued_least, double got)
{
	int near = got > least - POINTS && got < most + POINTS;
	int good = near || (got >= argued_least && got < most + POINTS);
	printf(" %6.1f %6.1f%s", least, got, near ? "  " : good ? " a" : " !");
	test_failed_checks += !good;
}

/* A share that is argued to be off, and is, has an `a` behind it; one that fails, a `!`. */
static void run(const struct run *r)
{
	char work[64], waiting[64], change[32];
	int both = r->large > 0;
	snprintf(work, sizeof work, "%d 0 %d", r->kernel, SECONDS);
	snprintf(waiting, sizeof waiting, "%d %d %d", r->kernel, r->waits, SECONDS);
	snprintf(change, sizeof change, "%d", r->change);
	setenv("FAKEGPU_SWITCH_US", change, 1);
	machine();
	t[0] = (struct tenant){
		.percent = SMALL, .work = waiting, .borrows = r->files, .processes = r->small,
		.apart = apart};
	t[1] = (struct tenant){
		.percent = LARGE, .work = work, .borrows = r->files, .processes = r->large};
	run_tenants(t, 1 + both);
	printf("    %8d %4d + %-4d %-6s %6d", r->kernel, r->small, r->large,
	       r->files ? "yes" : "no", r->change);
	double asked = r->files && !both ? 100 : SMALL;
	const struct argued *a = argued_for(r);
	expect(asked, asked, a ? a->small : asked, share(&t[0], 1, SECONDS));
	if (both)
		expect(large_share(r), LARGE, a ? a->large : LARGE, share(&t[1], 1, SECONDS));
	printf("%s\n", a ? " argued in docs/laboratory.md" : "");
	fflush(stdout);
	done();
}

static void head(void)
{
	printf("    %8s %11s %-6s %6s %6s %6s %8s %6s\n", "us", "processes", "files", "change",
	       "asked", "got", "asked", "got");
}

/*
 * All numbers of processes for one kernel: alone, beside as many, one beside them, them beside one.
 */
static void table(int kernel, int files, int change)
{
	int whole = getenv("VGPU_SHARES") != NULL;
	for (int i = 0; i < COUNTS; i++) {
		int n = counts[i];
		if (!whole && n != 1 && n != 4)
			continue;
		run(&(struct run){kernel, n, 0, files, change, 0});
		run(&(struct run){kernel, n, n, files, change, 0});
		if (n > 1 && whole) {
			run(&(struct run){kernel, 1, n, files, change, 0});
			run(&(struct run){kernel, n, 1, files, change, 0});
		}
	}
}

static void tables(int files, int change)
{
	head();
	int step = test_is_short() ? KERNELS - 1 : 1; /* the shortest and the longest */
	for (int k = 0; k < KERNELS; k += step)
		table(kernels[k], files, change);
}

TEST("containers of 1 to 16 processes get 30 and 70 % without files, whatever their kernels take")
{
	tables(0, 0);
}

TEST("they do with files by which neighbours lend")
{
	tables(1, 0);
}

TEST("they do without files where a change of tenant costs 200 us, as far as the device lasts")
{
	tables(0, 200);
}

TEST("they do with files where a change of tenant costs 200 us")
{
	tables(1, 200);
}

/*
 * A program that waits in the driver launches nothing meanwhile. Shorter kernels than these wait
 * for their turn on the device longer than they run, so that one at a time cannot have 30 %.
 */
TEST("who waits for each long kernel is not charged for the neighbour's time in it")
{
	head();
	for (int k = KERNELS - (test_is_short() ? 1 : 2); k < KERNELS; k++)
		for (int way = 0; way < 4; way++) {
			run(&(struct run){kernels[k], 1, 1, way % 2, way / 2 * 200, 1});
			run(&(struct run){kernels[k], 4, 1, way % 2, way / 2 * 200, 1});
		}
}

static int has_namespaces(void)
{
	int status = 0;
	pid_t pid = fork();
	if (pid == 0) {
		pid = fork_apart();
		_exit(pid < 0 ? 2 : pid == 0 ? 0 : waitpid(pid, &status, 0) != pid || status != 0);
	}
	return waitpid(pid, &status, 0) == pid && status == 0;
}

/* Nothing that tells processes apart may be a PID: all of the claim's have the same. */
TEST("containers of one claim, each with one process of the same PID, get its share together")
{
	if (!has_namespaces()) {
		printf("    not run: no PID and mount namespaces here, which need root\n");
		return;
	}
	apart = 1;
	head();
	for (int k = 0; k < KERNELS; k += test_is_short() ? KERNELS - 1 : 1)
		for (int n = 2; n <= (test_is_short() ? 2 : 4); n += 2)
			for (int files = 0; files < 2; files++) {
				run(&(struct run){kernels[k], n, 0, files, 200, 0});
				run(&(struct run){kernels[k], n, 1, files, 200, 0});
			}
}

TEST_MAIN
