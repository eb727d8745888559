/* SPDX-License-Identifier: Apache-2.0 */
/* pace_model_test.c: five workloads, alone and two at a time, under our limiter and HAMi-core's formula. */
#include "testing.h"

#include "pace_model.h"

static const struct workload workloads[] = {
	{"GEMM 1.4 ms", 2048, 1400000, 0},
	{"GEMM 1.4 ms, synchronised each", 2048, 1400000, 1},
	{"elementwise 0.2 ms", 65536, 200000, 0},
	{"264 blocks, 20 us", 264, 20000, 0},
	{"decode: 400 x 15 us, synchronised", 264, 15000, 400},
};
#define WORKLOADS (int)(sizeof workloads / sizeof *workloads)

static int within(double share, double want, double points)
{
	return share > want - points && share < want + points;
}

static double alone(enum limiter limiter, const struct workload *w, unsigned percent)
{
	double share;
	const struct tenant t = {*w, percent, 0};
	model_run(limiter, &t, 1, 20, &share);
	return share;
}

static void shares_of(unsigned percent)
{
	printf("    %-36s %8s %16s   (limit %u %%)\n", "workload", "ours", "HAMi-core model", percent);
	for (int i = 0; i < WORKLOADS; i++) {
		double ours = alone(LIMITER_TIME, &workloads[i], percent);
		printf("    %-36s %7.1f%% %15.1f%%\n", workloads[i].name, ours, alone(LIMITER_BLOCKS, &workloads[i], percent));
		CHECK(within(ours, percent, 2));
	}
}

TEST("five workloads get 30 % of the device, within 2 points")
{
	shares_of(30);
}

TEST("five workloads get 50 % of the device, within 2 points")
{
	shares_of(50);
}

TEST("a block count does not hold a GEMM at 30 %")
{
	CHECK(alone(LIMITER_BLOCKS, &workloads[0], 30) > 50);
}

TEST("two tenants at 30 and 70 get that, within 2 points, whatever they run")
{
	for (int i = 0; i < WORKLOADS; i++)
		for (int k = 0; k < WORKLOADS; k++) {
			double share[2];
			const struct tenant both[] = {{workloads[i], 30, 0}, {workloads[k], 70, 300000000}};
			model_run(LIMITER_TIME, both, 2, 6, share);
			printf("    %-36s %5.1f%%   %-36s %5.1f%%\n", workloads[i].name, share[0], workloads[k].name, share[1]);
			CHECK(within(share[0], 30, 2) && within(share[1], 70, 2));
		}
}

TEST_MAIN
