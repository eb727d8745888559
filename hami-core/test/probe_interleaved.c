/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_interleaved.c: four threads that launch in any order, so that their batches overlap, on the
 * fake driver's clock: they hand on a baton, because one thread of a process runs at a time there.
 */
#include "probe.h"

#include <pthread.h>
#include <string.h>

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t passed;
	int holder; /* who runs */
	unsigned seed;
} baton = {.mutex = PTHREAD_MUTEX_INITIALIZER, .passed = PTHREAD_COND_INITIALIZER};

#define RUNNERS 4
struct runner {
	CUcontext context;
	CUstream stream;
	long us;   /* of a kernel */
	int every; /* launches between two synchronisations; 0: never */
	int number, launches;
};

static struct runner runner[RUNNERS];

/* To anybody who has launches left (needs the mutex). */
static void hand_on(void)
{
	baton.seed = baton.seed * 1664525u + 1013904223u;
	baton.holder = -1;
	for (unsigned i = 0; i < RUNNERS && baton.holder < 0; i++) {
		unsigned next = (baton.seed / 256 + i) % RUNNERS;
		baton.holder = runner[next].launches ? (int)next : -1;
	}
	pthread_cond_broadcast(&baton.passed);
}

static void *run(void *argument)
{
	struct runner *r = argument;
	CUfunction f = NULL;
	char name[32];
	snprintf(name, sizeof name, "work_%ldus", r->us);
	pthread_mutex_lock(&baton.mutex);
	while (r->launches) {
		while (baton.holder != r->number)
			pthread_cond_wait(&baton.passed, &baton.mutex);
		NEED(f || cuCtxSetCurrent(r->context) == CUDA_SUCCESS);
		f = f ? f : probe_kernel(name);
		NEED(cuLaunchKernel(f, 2, 3, 1, 32, 1, 1, 0, r->stream, NULL, NULL) ==
		     CUDA_SUCCESS);
		r->launches--;
		if (r->every && r->launches % r->every == 0)
			NEED(cuStreamSynchronize(r->stream) == CUDA_SUCCESS);
		hand_on();
	}
	pthread_mutex_unlock(&baton.mutex);
	return NULL;
}

/* Seconds for 800 ms of work by four threads, in any order. */
static double interleaved(const long *us, int streams, int every)
{
	pthread_t t[RUNNERS];
	CUcontext context;
	NEED(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
	uint64_t start = fakegpu_now();
	baton.holder = 0;
	for (int i = 0; i < RUNNERS; i++) {
		runner[i] = (struct runner){context, NULL, us[i], every, i, (int)(200000 / us[i])};
		NEED(!streams || cuStreamCreate(&runner[i].stream, 0) == CUDA_SUCCESS);
	}
	for (int i = 0; i < RUNNERS; i++)
		NEED(!pthread_create(&t[i], NULL, run, &runner[i]));
	for (int i = 0; i < RUNNERS; i++)
		pthread_join(t[i], NULL);
	NEED(cuCtxSynchronize() == CUDA_SUCCESS);
	return (double)(fakegpu_now() - start) / 1e9;
}

/*
 * 800 ms at 50 % take 1.6 s, less a window's credit at most, and more only where the host holds the
 * threads up.
 */
void probe_interleaved(void)
{
	static const long works[][RUNNERS] = {{100, 100, 100, 100},
					      {20, 20, 20, 20},
					      {1400, 1400, 1400, 1400},
					      {20, 100, 400, 1400},
					      {10000, 20, 20, 20}};
	static const int every[] = {0, 1, 16};
	CUcontext context;
	double least = 9, most = 0, allowed = getenv("FAKEGPU_STALL") ? 1.95 : 1.65;
	NEED(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
	     cuCtxSetCurrent(context) == CUDA_SUCCESS);
	for (size_t i = 0; i < sizeof works / sizeof *works; i++)
		for (int k = 0; k < 6; k++) {
			double took = interleaved(works[i], k % 2, every[k / 2]);
			if (took < 1.5 || took > allowed)
				printf("    kernels of %ld, %ld, %ld and %ld us, %s, synchronised "
				       "every %d: %.3f s\n",
				       works[i][0], works[i][1], works[i][2], works[i][3],
				       k % 2 ? "a stream each" : "one stream", every[k / 2], took);
			least = took < least ? took : least;
			most = took > most ? took : most;
		}
	printf("    800 ms of work by four threads at 50 %%: %.3f to %.3f s\n", least, most);
	NEED(least > 1.5 && most < allowed);
}
