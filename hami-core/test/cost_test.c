/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost_test.c: what the library costs, measured in one run with and without it. What calls execute
 * is counted: the same on every x86_64 machine, however busy. `make cost` also judges nanoseconds:
 * where the bare call takes longer than on the machine where its bound was set, the bound grows as
 * much. Among the other tests, on a machine that may be busy, ten times as much passes.
 */
#include "machine.h"
#include "probe_cost.h"

#include <time.h>

#define BUSY 10

#define MEMORY HEAD "device 0 " U0 " memory=67108864 cores=0\ndevice 1 " U1 " memory=0 cores=0\n"
#define COMPUTE HEAD "device 0 " U0 " memory=0 cores=99\n"
#define BOTH HEAD "device 0 " U0 " memory=0 cores=99\ndevice 1 " U1 " memory=0 cores=0\n"

static const struct call {
	const char *what, *limits, *name; /* of probe_cost.c */
	double bare_ns, more_ns;	  /* where the bound was set, and the bound; 0: not timed */
	long more[COUNTS];		  /* at most, beyond what the driver executes */
} calls[] = {
	{"launch, unlimited", MEMORY, "launch", 10, 5, {33, 0, 0, 0}},
	{"launch of 1 us, limited; counted: within a batch", COMPUTE, "limited 1", 1070, 30, {190, 0, 0, 0}},
	{"  the same where the thread may change devices", BOTH, "limited 1", 1070, 60, {300, 0, 0, 0}},
	{"  a batch by itself, neighbours looked for", COMPUTE, "limited 2000", 0, 0, {11700, 7, 24, 7}},
	{"launch on that program's unlimited device", BOTH, "launch", 10, 40, {430, 0, 0, 0}},
	{"allocation and free of 2 MiB", MEMORY, "pair 2097152 0", 2400, 150, {1260, 20, 1, 0}},
	{"allocation and free of 4 KiB in a page of its own", MEMORY, "pair 4096 0", 2500, 300, {1900, 32, 1, 0}},
	{"  in a page that is there, 10 others alive", MEMORY, "pair 4096 10", 0, 0, {1650, 28, 1, 0}},
	{"  in a page that is there, 10,000 others alive", MEMORY, "pair 4096 10000", 0, 0, {1650, 28, 1, 0}},
	{"free memory, asked by the only process", MEMORY, "info 0", 1300, 400, {1930, 4, 2, 0}},
	/* 112 instructions and a system call for each other process, and one call more */
	{"  with 1 other", MEMORY, "info 1", 0, 0, {1930 + 112 + 85, 4, 2, 2}},
	{"  with 15 others", MEMORY, "info 15", 9000, 12000, {1930 + 112 * 15 + 85, 4, 2, 16}},
	{"  with 127 others", MEMORY, "info 127", 0, 0, {1930 + 112 * 127 + 85, 4, 2, 128}},
};

/* Runs a measure under the library; what it prints is in `output`. */
static int run_measure(const char *library, const char *measure, const char *call)
{
	char path[256], text[64], *argv[8], *save;
	int n = 0;
	snprintf(path, sizeof path, "%s/test/test/probe_%s", getenv("VGPU_TEST_BUILD"), measure);
	snprintf(text, sizeof text, "%s", call);
	argv[n++] = path;
	for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save))
		argv[n++] = w;
	argv[n] = NULL;
	return run_with(library, argv, NULL);
}

/* Prints one kind of count of a call, and whether its bound holds. */
static void check_count(const struct call *c, const char *kind, const long *counted, int k)
{
	long more = counted[COUNTS + k] - counted[k];
	if (counted[k] || more || c->more[k])
		printf("    %-52s %-16s %8ld %+8ld %+8ld  %s\n", k ? "" : c->what, kind, counted[k], more, c->more[k],
		       more <= c->more[k] ? "held" : "missed");
	CHECK(more <= c->more[k]);
}

TEST("calls execute little more than the driver's own")
{
	static const char *const kinds[] = {"instructions", "of them atomic", "clocks read", "system calls"};
	printf("    %-52s %-16s %8s %8s %8s\n", "", "", "without", "more", "at most");
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		long n[2 * COUNTS] = {0};
		machine(calls[i].limits);
		CHECK_EQ(run_measure(getenv("VGPU_TEST_PRELOAD"), "steps", calls[i].name), 0);
		CHECK_EQ(sscanf(output, "%ld %ld %ld %ld %ld %ld %ld %ld", n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7), 8);
		done();
		if (!n[INSTRUCTIONS]) {
			printf("    not counted: x86_64 only\n");
			return;
		}
		for (int k = 0; k < COUNTS; k++)
			check_count(&calls[i], kinds[k], n, k);
	}
}

/* How much slower this machine is than the one where a bound was set. */
static double slower(double without, double bare)
{
	return without > bare ? without / bare : 1;
}

static void head(void)
{
	static int told;
	if (!told++)
		printf("    %-52s %12s %11s %7s %11s\n", "nanoseconds", "without", "more", "slower", "at most");
}

static void row(const char *what, double without, double with, double times, double bound)
{
	int strict = getenv("VGPU_COST") != NULL;
	double more = with - without, most = bound * times;
	head();
	printf("    %-52s %12.1f %+11.1f %7.1f %+11.0f  %s\n", what, without, more, times, most, more <= most ? "held" : "missed");
	CHECK(more <= (strict ? most : most * BUSY));
}

/*
 * A call through the library beside the same call past it, in one program; of five runs the one
 * with the median difference.
 */
static void time_call(const struct call *c)
{
	double run[5][2];
	machine(c->limits);
	for (int i = 0; i < 5; i++) {
		CHECK_EQ(run_measure(getenv("VGPU_TEST_PRELOAD"), "times", c->name), 0);
		CHECK_EQ(sscanf(output, "%lf %lf", &run[i][0], &run[i][1]), 2);
		for (int k = i; k > 0 && run[k][1] - run[k][0] < run[k - 1][1] - run[k - 1][0]; k--)
			for (int w = 0; w < 2; w++) {
				double other = run[k][w];
				run[k][w] = run[k - 1][w];
				run[k - 1][w] = other;
			}
	}
	done();
	row(c->what, run[2][0], run[2][1], slower(run[2][0], c->bare_ns), c->more_ns);
}

TEST("calls cost little more than the driver's own")
{
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		if (calls[i].more_ns > 0)
			time_call(&calls[i]);
}

/* Least number that a program prints, in `tries` runs. */
static double best(const char *library, const char *call, int tries)
{
	double least = 1e18;
	for (int i = 0; i < tries; i++) {
		CHECK_EQ(run_measure(library, "times", call), 0);
		least = atof(output) < least ? atof(output) : least;
	}
	return least;
}

TEST("a CUDA program starts as fast beside many as alone")
{
	static const int others[] = {0, 15, 127};
	double more[3], times = 1;
	machine(LIMITS);
	for (int i = 0; i < 3; i++) {
		char what[64], call[32];
		snprintf(what, sizeof what, "start of a CUDA program beside %d others", others[i]);
		snprintf(call, sizeof call, "start %d", others[i]);
		double without = best("", call, 3), with = best(getenv("VGPU_TEST_PRELOAD"), call, 3);
		times = i ? times : slower(without, 1e5);
		row(what, without, with, times, 3e6);
		more[i] = with - without;
	}
	row("  the last beside the first", more[0], more[2], times, 1e6);
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
	row("a program without CUDA", without, with, slower(without, 6e5), 1e6);
	done();
}

TEST_MAIN
