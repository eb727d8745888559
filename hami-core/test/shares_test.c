/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shares_test.c: five workloads under the library on the fake driver's clock, alone and two at a
 * time, beside what HAMi-core's formula makes of them (blocks_model.h).
 */
#include "tenants.h"

#include "blocks_model.h"

static const struct {
	const char *name, *work;
	struct workload model;
} workloads[] = {
	{"GEMM 1.4 ms", "1400 0", {2048, 1400000, 0}},
	{"GEMM 1.4 ms, synchronised each", "1400 1", {2048, 1400000, 1}},
	{"elementwise 0.2 ms", "200 0", {65536, 200000, 0}},
	{"264 blocks, 20 us", "20 0", {264, 20000, 0}},
	{"decode: 400 x 15 us, synchronised", "15 400", {264, 15000, 400}},
};
#define WORKLOADS (int)(sizeof workloads / sizeof *workloads)
#define POINTS 2.0

/*
 * Shares of tenants, after the first second; for as many seconds more. With `borrow` they have
 * files by which they lend and take turns.
 */
static void run_each(int count, const char *const *works, const unsigned *percent, int seconds,
		     int borrow, double *out)
{
	static struct tenant t[TENANTS];
	char work[TENANTS][64];
	machine();
	for (int i = 0; i < count; i++) {
		snprintf(work[i], sizeof work[i], "%s %d", works[i], seconds + 1);
		t[i] = (struct tenant){
			.percent = percent[i], .work = work[i], .borrows = borrow};
	}
	run_tenants(t, count);
	for (int i = 0; i < count; i++)
		out[i] = share(&t[i], 1, seconds + 1);
	done();
}

static void run_works(int count, const char *const *works, const unsigned *percent, int seconds,
		      double *out)
{
	run_each(count, works, percent, seconds, 0, out);
}

static void ours(int count, const int *which, const unsigned *percent, int seconds, double *out)
{
	const char *works[TENANTS];
	for (int i = 0; i < count; i++)
		works[i] = workloads[which[i]].work;
	run_works(count, works, percent, seconds, out);
}

static void theirs(int count, const int *which, const unsigned *percent, double *out)
{
	struct blocks_tenant t[TENANTS];
	for (int i = 0; i < count; i++)
		t[i] = (struct blocks_tenant){workloads[which[i]].model, percent[i]};
	blocks_run(t, count, count == 1 ? 20 : 6, out);
}

static void row(const char *name, unsigned asked, double got, double blocks)
{
	printf("    %-50s %5u %9.2f %18.1f %+8.2f\n", name, asked, got, blocks, got - asked);
	CHECK(got > asked - POINTS && got < asked + POINTS);
}

static void head(void)
{
	printf("    %-50s %5s %9s %18s %8s\n", "workload", "asked", "ours", "HAMi-core (model)",
	       "error");
}

static void alone(unsigned percent)
{
	head();
	for (int i = 0; i < WORKLOADS; i++) {
		double got, blocks;
		ours(1, &i, &percent, 5, &got);
		theirs(1, &i, &percent, &blocks);
		row(workloads[i].name, percent, got, blocks);
	}
}

TEST("five workloads get 30 % of the device, within 2 points")
{
	alone(30);
}

TEST("five workloads get 50 % of the device, within 2 points")
{
	alone(50);
}

TEST("five workloads get 70 % of the device, within 2 points")
{
	alone(70);
}

TEST("two tenants at 30 and 70 get that, within 2 points, whatever they run")
{
	static const unsigned percent[] = {30, 70};
	head();
	for (int i = 0; i < WORKLOADS; i++)
		for (int k = test_is_short() ? i : 0; k < WORKLOADS; k++) {
			double got[2], blocks[2];
			char name[128];
			ours(2, (const int[]){i, k}, percent, 4, got);
			theirs(2, (const int[]){i, k}, percent, blocks);
			row(workloads[i].name, 30, got[0], blocks[0]);
			snprintf(name, sizeof name, "  beside it: %s", workloads[k].name);
			row(name, 70, got[1], blocks[1]);
		}
}

/*
 * A launch's cost is known from the third of its kind, or of nearly its size. Before, it is
 * measured by itself, and a neighbour's time slices with it.
 */
TEST("a program whose sizes change gets its share alone, and no more than it beside another one")
{
	static const char *const works[] = {"1400x10 0",  "1400x1000 0", "1400x100000 0",
					    "200x10 0",	  "200x1000 0",	 "20x10 0",
					    "20x1000 0",  "20x100000 0"};
	static const unsigned percent[] = {30, 70};
	printf("    %-24s %8s %12s %8s %12s %8s\n", "us x sizes, at 30 %", "alone", "beside 70 %",
	       "and that", "in turn", "and that");
	for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
		double alone[1], both[2], turns[2];
		const char *const two[] = {works[i], "1400 0"};
		run_works(1, &works[i], percent, 5, alone);
		run_works(2, two, percent, 5, both);
		run_each(2, two, percent, 5, 1, turns);
		printf("    %-24s %8.1f %12.1f %8.1f %12.1f %8.1f\n", works[i], alone[0], both[0],
		       both[1], turns[0], turns[1]);
		CHECK(alone[0] > 28 && alone[0] < 32 && both[0] < 32 && both[1] < 72);
		CHECK(both[0] > 28 && turns[0] > 27 && turns[0] < 32);
	}
}

/*
 * A product of matrices is the same kernel in the same size however long the rows are that it adds
 * up. What was launched before tells such launches apart.
 */
TEST("kernels that take 3 to 5 times as long elsewhere in a loop get their share, and no more")
{
	static const char *const works[] = {"28,~20,115,~25 0", "28,~20,115,~25/100 4",
					    "28,~20,115,~25,60,~30/200 12",
					    "28,~20,140,~25,~15,70,~30,~10,300/400 9",
					    "400,~50,1500,~60/1000 8"};
	static const unsigned percent[] = {100, 30, 50, 70};
	double got[4], both[2];
	printf("    %-42s %6s %6s %6s %6s %12s %8s\n", "us", "bare", "30 %", "50 %", "70 %",
	       "30 beside 70", "and that");
	for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
		for (int k = 0; k < 4; k++) {
			run_works(1, &works[i], &percent[k], 5, &got[k]);
			CHECK(got[k] < percent[k] + POINTS);
			CHECK(got[k] > percent[k] - POINTS || got[k] > got[0] - POINTS);
		}
		run_works(2, (const char *const[]){works[i], "1400 0"}, (const unsigned[]){30, 70},
			  5, both);
		printf("    %-42s %6.1f %6.1f %6.1f %6.1f %12.1f %8.1f\n", works[i], got[0],
		       got[1], got[2], got[3], both[0], both[1]);
		CHECK(both[0] < 30 + POINTS && both[1] < 70 + POINTS);
	}
}

/* While all batches were of about the same size, these had 15 of their 30 %. */
TEST("a program of long and short kernels gets its share beside a busy one, within 3 points")
{
	static const char *const works[] = {"~1500,~400,~50,~60/1000 8", "~400,~50,~1500,~60 0",
					    "400,~50,1500,~60 0"};
	double both[2];
	for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
		run_works(2, (const char *const[]){works[i], "1400 0"}, (const unsigned[]){30, 70},
			  5, both);
		printf("    %-42s %6.1f %6.1f\n", works[i], both[0], both[1]);
		CHECK(both[0] > 27 && both[0] < 30 + POINTS && both[1] < 70 + POINTS);
	}
}

TEST("a block count does not hold a GEMM at 30 %")
{
	double got;
	theirs(1, (const int[]){0}, (const unsigned[]){30}, &got);
	CHECK(got > 50);
}

TEST("two runs are the same to the nanosecond")
{
	static const unsigned percent[] = {30, 70};
	static const int which[] = {3, 0};
	double a[2], b[2];
	ours(2, which, percent, 1, a);
	ours(2, which, percent, 1, b);
	CHECK(a[0] == b[0] && a[1] == b[1]);
}

TEST_MAIN
