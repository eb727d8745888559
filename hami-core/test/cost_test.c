/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost_test.c: what the library costs, measured in one run with and without it, the best of
 * several each. The bounds are wide enough for a busy machine; `make cost` prints the figures.
 */
#include "machine.h"

#include <time.h>

/* Least number that a probe prints, in `tries` runs. */
static double best(const char *library, const char *name, const char *const *variables, int tries)
{
	double least = 1e18;
	char path[256];
	snprintf(path, sizeof path, "%s/test/test/probe", getenv("VGPU_TEST_BUILD"));
	for (int i = 0; i < tries; i++) {
		int code = run_with(library, (char *const[]){path, (char *)name, NULL}, variables);
		CHECK_EQ(code, 0);
		least = atof(output) < least ? atof(output) : least;
	}
	return least;
}

static void tell(const char *what, double without, double with, double bound)
{
	if (getenv("VGPU_COST"))
		printf("    %-52s %10.0f ns without, %+8.0f ns with\n", what, without, with - without);
	CHECK(with - without < bound);
	if (with - without >= bound)
		printf("    %s: %.0f ns more, want less than %.0f\n", what, with - without, bound);
}

TEST("an allocation and its free cost little more than the driver's own")
{
	machine(LIMITS);
	double without = best("", "cost-pair", NULL, 5), with = best(getenv("VGPU_TEST_PRELOAD"), "cost-pair", NULL, 5);
	tell("allocation and free of 2 MiB", without, with, 2000);
	done();
}

TEST("a CUDA program starts as fast beside many as alone")
{
	static const char *const others[] = {"0", "15", "127"};
	machine(LIMITS);
	for (int i = 0; i < 3; i++) {
		const char *const variables[] = {"PROBE_PROCESSES", others[i], NULL};
		char what[64];
		snprintf(what, sizeof what, "start of a CUDA program beside %s others", others[i]);
		double without = best("", "cost-start", variables, 3), with = best(getenv("VGPU_TEST_PRELOAD"), "cost-start", variables, 3);
		tell(what, without, with, 3e6);
	}
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
	tell("a program without CUDA", without, with, 1e6);
	done();
}

TEST_MAIN
