/* SPDX-License-Identifier: Apache-2.0 */
/* client_work.c: steps that give the device something to do. */
#include "client.h"

#include <stdio.h>

static CUresult find_kernel(struct client *c, const char *name, CUfunction *work)
{
	CUmodule module;
	CUresult r = client_start(c);
	if (r == CUDA_SUCCESS)
		r = c->driver.ModuleLoadData(&module, "work");
	return r == CUDA_SUCCESS ? c->driver.ModuleGetFunction(work, module, name) : r;
}

static CUresult launch_some(struct client *c, CUfunction work, int n)
{
	CUresult r = CUDA_SUCCESS;
	while (n-- && r == CUDA_SUCCESS)
		r = c->driver.LaunchKernel(work, 108, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL);
	return r == CUDA_SUCCESS ? c->driver.StreamSynchronize(NULL) : r;
}

CUresult work_launch(struct client *c, long n)
{
	CUfunction work;
	CUresult r = find_kernel(c, "work_1000us", &work);
	double start = client_now();
	for (long done = 0; done < n && r == CUDA_SUCCESS; done += 16)
		r = launch_some(c, work, n - done < 16 ? (int)(n - done) : 16);
	double took = client_now() - start;
	printf("launch kernels=%ld seconds=%.3f rate=%.1f result=%s\n", n, took, took > 0 ? (double)n / took : 0,
	       client_error(c, r));
	return r;
}

/*
 * Kernels back to back, at most about 16 ms of them queued: what a program does that wants all it can get. The middle is
 * without a fifth at either end, where a neighbour that was started with it may not be there yet, or no more.
 */
CUresult work_busy(struct client *c, double seconds, double ms)
{
	char name[32];
	CUfunction work;
	long kernels = 0, from = 0, to = 0;
	int some = ms < 16 ? (int)(16 / ms) : 1;
	snprintf(name, sizeof name, "work_%.0fus", ms * 1000);
	CUresult r = find_kernel(c, name, &work);
	double start = client_now(), took = 0, began = 0, ended = 0;
	for (; r == CUDA_SUCCESS && took < seconds; took = client_now() - start) {
		if (began == 0 && took >= seconds / 5)
			began = took, from = kernels;
		if (took <= seconds * 4 / 5)
			ended = took, to = kernels;
		r = launch_some(c, work, some);
		kernels += some;
	}
	printf("busy seconds=%.3f kernels=%ld ms=%g fraction=%.3f middle=%.3f result=%s\n", took, kernels, ms,
	       took > 0 ? (double)kernels * ms / 1000 / took : 0,
	       ended > began ? (double)(to - from) * ms / 1000 / (ended - began) : 0, client_error(c, r));
	return r;
}

/* What one round of churn finds that it should not; CUDA_SUCCESS if nothing. */
static CUresult churn_once(struct client *c, CUfunction work, size_t fits, size_t beyond)
{
	CUdeviceptr block = 0, more = 0;
	CUresult r = c->driver.MemAlloc(&block, fits), refusal;
	if (r != CUDA_SUCCESS)
		return r;
	refusal = c->driver.MemAlloc(&more, beyond);
	if (refusal == CUDA_SUCCESS)
		(void)c->driver.MemFree(more);
	r = launch_some(c, work, 1);
	if (r == CUDA_SUCCESS)
		r = c->driver.MemFree(block);
	if (r == CUDA_SUCCESS && refusal != CUDA_ERROR_OUT_OF_MEMORY)
		r = refusal == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : refusal;
	return r;
}

CUresult work_churn(struct client *c, size_t fits, size_t beyond)
{
	CUfunction work;
	CUresult r = find_kernel(c, "work_1000us", &work), last = r;
	long rounds = 0, errors = 0;
	for (double told = 0; r == CUDA_SUCCESS; rounds++) {
		CUresult found = churn_once(c, work, fits, beyond);
		if (found != CUDA_SUCCESS)
			errors++, last = found;
		if (client_now() - told >= 0.5) {
			told = client_now();
			printf("churn rounds=%ld errors=%ld last=%s\n", rounds + 1, errors, client_error(c, last));
			fflush(stdout);
		}
		client_rest(0.02);
	}
	printf("churn result=%s\n", client_error(c, r));
	return r;
}
