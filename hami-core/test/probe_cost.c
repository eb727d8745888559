/* SPDX-License-Identifier: Apache-2.0 */
/* probe_cost.c: prints what something takes, in nanoseconds, with whatever library is in front. */
#define _GNU_SOURCE
#include "probe.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* One allocation of 2 MiB and its free. */
void probe_cost_pair(void)
{
	enum { PAIRS = 20000 };
	CUdeviceptr at;
	use_device(0);
	NEED(cuMemAlloc_v2(&at, 2 * MIB) == CUDA_SUCCESS && cuMemFree_v2(at) == CUDA_SUCCESS);
	double start = now();
	for (int i = 0; i < PAIRS; i++)
		NEED(cuMemAlloc_v2(&at, 2 * MIB) == CUDA_SUCCESS && cuMemFree_v2(at) == CUDA_SUCCESS);
	printf("%.0f\n", (now() - start) / PAIRS);
}

/* From cuInit to the first allocation, in a process beside PROBE_PROCESSES others that have memory. */
void probe_cost_start(void)
{
	int go[2], ready[2], others = atoi(getenv("PROBE_PROCESSES"));
	char c;
	NEED(!pipe(go) && !pipe(ready));
	for (int i = 0; i < others; i++)
		if (fork() == 0) {
			close(go[1]);
			use_device(1);
			NEED(take(2 * MIB) == CUDA_SUCCESS && write(ready[1], "x", 1) == 1);
			NEED(read(go[0], &c, 1) == 0);
			_exit(0);
		}
	for (int i = 0; i < others; i++)
		NEED(read(ready[0], &c, 1) == 1);
	double start = now();
	use_device(0);
	NEED(take(2 * MIB) == CUDA_SUCCESS);
	printf("%.0f\n", now() - start);
	close(go[1]);
	while (wait(NULL) > 0)
		;
}
