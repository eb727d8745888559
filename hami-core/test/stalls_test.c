/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stalls_test.c: containers on a machine that has other things to do, under the library on the fake driver's clock. Programs are
 * held up in the middle of a launch, for longer than their kernels take, so that the device stands idle between two
 * marks, or has long ended when the second is made.
 */
#include "tenants.h"

static struct tenant t[TENANTS];

static const char *const works[] = {"1400 0 6", "1400 1 6", "1000 16 6", "200 0 6", "20000 1 6", "20 0 6", "15 400 6"};
#define WORKS (int)(sizeof works / sizeof *works)
#define LONG 5 /* so many of them have kernels so long that a program gets 30 % of the device by few calls */

/* One call of the driver in so many is held up, for at most so many microseconds. */
static const struct {
	const char *text;
	int little; /* leaves a program time enough to use its share */
} stalls[] = {{"1/0", 1}, {"100/200", 1}, {"100/1000", 1}, {"300/10000", 1}, {"30/2000", 1}, {"10/1000", 1}, {"10/5000", 0}, {"3/1000", 0}, {"1/50", 0}};
#define STALLS (int)(sizeof stalls / sizeof *stalls)

static void head(void)
{
	printf("    %-12s", "held up");
	for (int i = 0; i < WORKS; i++)
		printf(" %9s", works[i]);
	printf("\n");
}

/* The share of the first tenant, with its neighbours as they are. */
static double with_stalls(const char *stall, int count)
{
	setenv("FAKEGPU_STALL", stall, 1);
	machine();
	run_tenants(t, count);
	done();
	return share(&t[0], 1, 6);
}

TEST("a container whose program is held up while it launches gets no more than its share")
{
	head();
	for (int s = 0; s < STALLS; s++) {
		printf("    %-12s", stalls[s].text);
		for (int i = 0; i < WORKS; i++) {
			t[0] = (struct tenant){.percent = 30, .work = works[i]};
			double got = with_stalls(stalls[s].text, 1);
			printf(" %9.1f", got);
			CHECK(got < 32 && (got > 28 || i >= LONG || !stalls[s].little));
		}
		printf("\n");
	}
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
