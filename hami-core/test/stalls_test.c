/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stalls_test.c: containers on a machine that has other things to do, under the library on the fake
 * driver's clock. Programs are held up in the middle of a launch, for longer than their kernels
 * take, so that the device stands idle between two marks, or has long ended when the second is
 * made.
 */
#include "tenants.h"

static struct tenant t[TENANTS];

/* One call of the driver in so many is held up, for at most so many microseconds. */
static const struct {
	const char *text;
	int little; /* leaves a program time enough to use its share */
} stalls[] = {{"1/0", 1},     {"100/200", 1}, {"100/1000", 1}, {"300/10000", 1}, {"30/2000", 1},
	      {"10/1000", 1}, {"10/5000", 0}, {"3/1000", 0},   {"1/50", 0}};
#define STALLS (int)(sizeof stalls / sizeof *stalls)

/* The share of the first tenant, with its neighbours as they are. */
static double with_stalls(const char *stall, int count)
{
	setenv("FAKEGPU_STALL", stall, 1);
	machine();
	run_tenants(t, count);
	done();
	return share(&t[0], 1, 6);
}

/*
 * The first `sure` works get their share while they have the time to launch; none gets more, ever.
 */
static void table(const char *const *work, int works, int sure)
{
	printf("    %-12s", "held up");
	for (int i = 0; i < works; i++)
		printf(" %17s", work[i]);
	printf("\n");
	for (int s = 0; s < STALLS; s++) {
		printf("    %-12s", stalls[s].text);
		for (int i = 0; i < works; i++) {
			t[0] = (struct tenant){.percent = 30, .work = work[i]};
			double got = with_stalls(stalls[s].text, 1);
			printf(" %17.1f", got);
			CHECK(got < 32 && (got > 28 || i >= sure || !stalls[s].little));
		}
		printf("\n");
	}
}

TEST("a container whose program is held up while it launches gets no more than its share")
{
	static const char *const works[] = {"1400 0 6",  "1400 1 6", "1000 16 6", "200 0 6",
					    "20000 1 6", "20 0 6",   "15 400 6"};
	table(works, 7, 5); /* the short kernels are too many to be launched in time */
}

TEST("nor does one whose launches are all new")
{
	static const char *const works[] = {"1400x100000 0 6", "1400x100000 1 6", "200x100000 0 6",
					    "20000x100000 1 6", "20x100000 0 6"};
	table(works, 5, 0); /* each is measured by itself, pauses of the device within it, too */
}

TEST("nor do two beside each other, and both get theirs while they have the time to launch it")
{
	printf("    %-12s %9s %9s\n", "held up", "30 %", "70 %");
	for (int s = 0; s < STALLS; s++) {
		t[0] = (struct tenant){.percent = 30, .work = "1000 16 6"};
		t[1] = (struct tenant){.percent = 70, .work = "1400 0 6"};
		double got = with_stalls(stalls[s].text, 2), other = share(&t[1], 1, 6);
		printf("    %-12s %9.1f %9.1f\n", stalls[s].text, got, other);
		CHECK(got < 32 && other < 72 && (!stalls[s].little || (got > 28 && other > 65)));
	}
}

TEST_MAIN
