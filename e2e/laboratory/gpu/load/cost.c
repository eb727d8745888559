/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c: what single calls cost the host. Bursts, so that waiting for the device is not in the figures. */
#define _GNU_SOURCE
#include "load.h"

#include <sched.h>
#include <stdio.h>

#define BURST 500
#define MAX_BURSTS 20000

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			unsigned shared, CUstream stream, void **params, void **extra);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr pointer);
CUresult cuEventCreate(CUevent *event, unsigned int flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventQuery(CUevent event);
CUresult cuEventSynchronize(CUevent event);

static double times[MAX_BURSTS];

static void answer(int bursts, int each)
{
	double sum = 0;
	for (int i = 0; i < bursts; i++)
		sum += times[i];
	load_sort(times, bursts);
	printf("= calls=%d median_ns=%.1f low_ns=%.1f high_ns=%.1f mean_ns=%.1f\n", bursts * each,
	       load_quantile(times, bursts, 0.5), load_quantile(times, bursts, 0.1), load_quantile(times, bursts, 0.9),
	       bursts ? sum / bursts : 0);
}

static int bursts_of(int calls, int each)
{
	int n = calls / each;
	return n < 1 ? 1 : n > MAX_BURSTS ? MAX_BURSTS : n;
}

/* pin CPU: so that all processes compared run on one and the same */
void load_pin(struct load *l, int count, char **words)
{
	cpu_set_t set;
	(void)l;
	CPU_ZERO(&set);
	CPU_SET((size_t)load_number(count, words, 1, 0), &set);
	printf("= pinned=%d\n", sched_setaffinity(0, sizeof set, &set) == 0);
}

/* launch N: empty kernels */
void load_launch(struct load *l, int count, char **words)
{
	int bursts = bursts_of((int)load_number(count, words, 1, 100000), BURST);
	CUfunction empty = load_kernel(l, "work_1us");
	if (!empty)
		return;
	for (int b = 0; b < bursts; b++) {
		double start = load_seconds();
		for (int i = 0; i < BURST; i++)
			if (load_failed("cuLaunchKernel", cuLaunchKernel(empty, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL)))
				return;
		times[b] = (load_seconds() - start) * 1e9 / BURST;
		if (load_failed("cuStreamSynchronize", cuStreamSynchronize(NULL)))
			return;
	}
	answer(bursts, BURST);
}

/* pairs N BYTES: an allocation and its free */
void load_pairs(struct load *l, int count, char **words)
{
	enum { EACH = 20 };
	int bursts = bursts_of((int)load_number(count, words, 1, 1000), EACH);
	size_t bytes = (size_t)load_number(count, words, 2, 1.0 * MIB);
	if (load_start(l))
		return;
	for (int b = 0; b < bursts; b++) {
		double start = load_seconds();
		for (int i = 0; i < EACH; i++) {
			CUdeviceptr at;
			if (load_failed("cuMemAlloc", cuMemAlloc_v2(&at, bytes)) || load_failed("cuMemFree", cuMemFree_v2(at)))
				return;
		}
		times[b] = (load_seconds() - start) * 1e9 / EACH;
	}
	answer(bursts, EACH);
}

/* events N: what the limiter pays to learn how long work took; medians */
void load_events(struct load *l, int count, char **words)
{
	enum { EACH = 100 };
	int bursts = bursts_of((int)load_number(count, words, 1, 20000), EACH);
	CUevent event[EACH];
	double record, query, low;
	if (load_start(l))
		return;
	for (int i = 0; i < EACH; i++)
		if (load_failed("cuEventCreate", cuEventCreate(&event[i], CU_EVENT_DEFAULT)))
			return;
	for (int b = 0; b < bursts; b++) {
		double start = load_seconds();
		for (int i = 0; i < EACH; i++)
			if (load_failed("cuEventRecord", cuEventRecord(event[i], NULL)))
				return;
		times[b] = (load_seconds() - start) * 1e9 / EACH;
		if (load_failed("cuEventSynchronize", cuEventSynchronize(event[EACH - 1])))
			return;
	}
	load_sort(times, bursts);
	record = load_quantile(times, bursts, 0.5);
	low = load_quantile(times, bursts, 0.1);
	for (int b = 0; b < bursts; b++) {
		double start = load_seconds();
		for (int i = 0; i < EACH; i++)
			(void)cuEventQuery(event[i]);
		times[b] = (load_seconds() - start) * 1e9 / EACH;
	}
	load_sort(times, bursts);
	query = load_quantile(times, bursts, 0.5);
	printf("= record_ns=%.1f record_low_ns=%.1f query_ns=%.1f\n", record, low, query);
}
