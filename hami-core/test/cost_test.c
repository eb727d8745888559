/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost_test.c: what the library costs, measured in one run with and without it. `make cost` prints
 * a table and fails when a bound is missed; among the other tests, on a machine that may be busy,
 * ten times as much passes.
 */
#include "machine.h"

#include <time.h>

#define BUSY 10

static void head(void)
{
	static int told;
	if (!told++)
		printf("    %-52s %12s %10s %10s\n", "nanoseconds", "without", "with", "at most");
}

static void row(const char *what, double without, double with, double bound)
{
	int strict = getenv("VGPU_COST") != NULL;
	double more = with - without;
	head();
	printf("    %-52s %12.1f %+10.1f %+10.0f  %s\n", what, without, more, bound, more <= bound ? "held" : "missed");
	CHECK(more <= (strict ? bound : bound * BUSY));
}

static int code_of(const char *library, const char *name, const char *const *variables)
{
	char path[256];
	snprintf(path, sizeof path, "%s/test/test/probe", getenv("VGPU_TEST_BUILD"));
	return run_with(library, (char *const[]){path, (char *)name, NULL}, variables);
}

/* Least number that a probe prints, in `tries` runs. */
static double best(const char *library, const char *name, const char *const *variables, int tries)
{
	double least = 1e18;
	for (int i = 0; i < tries; i++) {
		CHECK_EQ(code_of(library, name, variables), 0);
		least = atof(output) < least ? atof(output) : least;
	}
	return least;
}

/*
 * A call through the library beside the same call past it, in one program; of five runs the one
 * with the median difference.
 */
static void call_with(const char *what, const char *name, const char *const *variables, double bound)
{
	double run[5][2];
	for (int i = 0; i < 5; i++) {
		CHECK_EQ(code_of(getenv("VGPU_TEST_PRELOAD"), name, variables), 0);
		CHECK_EQ(sscanf(output, "%lf %lf", &run[i][0], &run[i][1]), 2);
		for (int k = i; k > 0 && run[k][1] - run[k][0] < run[k - 1][1] - run[k - 1][0]; k--)
			for (int w = 0; w < 2; w++) {
				double other = run[k][w];
				run[k][w] = run[k - 1][w];
				run[k - 1][w] = other;
			}
	}
	row(what, run[2][0], run[2][1], bound);
}

static void call(const char *what, const char *name, double bound)
{
	call_with(what, name, NULL, bound);
}

TEST("calls cost little more than the driver's own")
{
	machine(HEAD "device 0 " U0 " memory=67108864 cores=0\ndevice 1 " U1 " memory=0 cores=0\n");
	call("launch, unlimited", "cost-launch", 5);
	call("allocation and free of 2 MiB", "cost-pair", 150);
	call_with("allocation and free of 4 KiB", "cost-pair", (const char *const[]){"PROBE_SIZE", "4096", NULL}, 300);
	call_with("free memory, asked by the only process", "cost-info", (const char *const[]){"PROBE_PROCESSES", "0", NULL}, 400);
	call_with("free memory, asked beside 15 others", "cost-info", (const char *const[]){"PROBE_PROCESSES", "15", NULL}, 25000);
	done();
	machine(HEAD "device 0 " U0 " memory=0 cores=99\n");
	call("launch of 1 us, limited to 99 %, batches included", "cost-limited", 20);
	done();
	machine(HEAD "device 0 " U0 " memory=0 cores=99\ndevice 1 " U1 " memory=0 cores=0\n");
	call("the same where the thread may change devices", "cost-limited", 60);
	call("launch on that other, unlimited device", "cost-launch", 40);
	done();
}

TEST("a CUDA program starts as fast beside many as alone")
{
	static const char *const others[] = {"0", "15", "127"};
	double more[3];
	machine(LIMITS);
	for (int i = 0; i < 3; i++) {
		const char *const variables[] = {"PROBE_PROCESSES", others[i], NULL};
		char what[64];
		snprintf(what, sizeof what, "start of a CUDA program beside %s others", others[i]);
		double without = best("", "cost-start", variables, 3), with = best(getenv("VGPU_TEST_PRELOAD"), "cost-start", variables, 3);
		row(what, without, with, 3e6);
		more[i] = with - without;
	}
	row("  the last beside the first", more[0], more[2], 1e6);
	done();
}

/* Nanoseconds of the fastest of many runs of /bin/true. */
static double true_takes(const char *library)
{
	double least = 1e18;
	for (int i = 0; i < 200; i++) {
		struct timespec a, b;
		clock_gettime(CLOCK_MONOTONIC, &a);
		CHECK_EQ(run_with(library, (char *const[]){"/bin/true", NULL}, NULL), 0);
		clock_gettime(CLOCK_MONOTONIC, &b);
		double took = (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
		least = took < least ? took : least;
	}
	return least;
}

TEST("a program without CUDA pays less than a millisecond")
{
	machine(LIMITS);
	double without = true_takes(""), with = true_takes(getenv("VGPU_TEST_PRELOAD"));
	row("a program without CUDA", without, with, 1e6);
	done();
}

TEST_MAIN
