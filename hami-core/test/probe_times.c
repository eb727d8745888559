/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_times.c: nanoseconds of a call, timed in bursts by each way in turn. The slowest fifth of
 * each is left out.
 */
#define _GNU_SOURCE
#include "probe.h"
#include "probe_cost.h"

#include <time.h>

#define BURSTS 400

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double usual(double *bursts)
{
	double sum = 0;
	qsort(bursts, BURSTS, sizeof *bursts, by_size);
	for (int i = 0; i < BURSTS * 4 / 5; i++)
		sum += bursts[i];
	return sum / (BURSTS * 4 / 5);
}

void compare(call_by *call, int burst, unsigned pause_us)
{
	(void)pause_us;
	static double took[2][BURSTS];
	for (int i = 0; i < BURSTS * 2; i++) {
		double start = now();
		for (int k = 0; k < burst; k++)
			call(i % 2);
		took[i % 2][i / 2] = (now() - start) / burst;
		NEED(cuCtxSynchronize() == CUDA_SUCCESS);
	}
	printf("%.2f %.2f\n", usual(took[0]), usual(took[1]));
}
