/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_exact.c: programs that try to get a page more than 64 MiB, or to be refused one that is
 * free. What the fake card really gave out decides: its own count, and the highest sum of bytes
 * used and asked for while a call ran (e2e/fakegpu/src/cuda_watch.c).
 */
#define _GNU_SOURCE
#include "probe.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT (64 * MIB)
#define PAGE (2 * MIB)
#define SLOTS 400 /* blocks that one thread holds at most */

void *fakegpu_function(const char *symbol);
void fakegpu_dry_begin(void);
uint64_t fakegpu_dry_end(void);
void fakegpu_flight_begin(const uint64_t *bytes, int count);
void fakegpu_flight_end(uint64_t *most, int count);
uint64_t fakegpu_used(int ordinal);

enum { PLAIN, MANAGED, PITCHED, WAYS };

static CUresult ask(int way, CUdeviceptr *at, uint64_t bytes)
{
	size_t pitch;
	switch (way) {
	case PLAIN: return cuMemAlloc_v2(at, bytes);
	case MANAGED: return cuMemAllocManaged(at, bytes, 1);
	default:
		return cuMemAllocPitch_v2(at, &pitch, bytes > 700 ? 700 : bytes,
					  (bytes + 699) / 700, 4);
	}
}

/* Bytes that a request may take: pitched rows of 700 bytes become 1024. */
static uint64_t most_of(int way, uint64_t bytes)
{
	return (bytes + (way == PITCHED ? bytes / 2 + 1024 : 0) + PAGE - 1) / PAGE * PAGE;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* What a thread may do: blocks between two sizes. */
struct mix {
	uint64_t least, most;
	int ways; /* the first so many of the ways */
	double seconds;
};

struct worker {
	const struct mix *mix;
	unsigned seed;
	long given, refused, wrongly;
	CUdeviceptr held[SLOTS];
	uint64_t size[SLOTS];
	int holds;
};

static uint64_t random_size(const struct mix *m, unsigned *seed)
{
	uint64_t range = m->most - m->least + 1,
		 r = (uint64_t)rand_r(seed) << 20 ^ (uint64_t)rand_r(seed);
	/* small ones as often as large ones */
	return m->least + (rand_r(seed) % 2 ? r % range : r % (range >> rand_r(seed) % 12 | 1));
}

static void take_one(struct worker *w)
{
	int way = rand_r(&w->seed) % w->mix->ways;
	uint64_t bytes = random_size(w->mix, &w->seed), asked = most_of(way, bytes), most;
	fakegpu_flight_begin(&asked, 1);
	CUresult r = ask(way, &w->held[w->holds], bytes);
	fakegpu_flight_end(&most, 1);
	NEED(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
	w->given += r == CUDA_SUCCESS;
	w->refused += r != CUDA_SUCCESS;
	w->wrongly += r != CUDA_SUCCESS && most <= LIMIT;
	w->size[w->holds] = bytes;
	w->holds += r == CUDA_SUCCESS;
}

/*
 * A small block's page may be credited only when this call ends, though another's gave it back to
 * the card.
 */
static void give_one(struct worker *w)
{
	int i = rand_r(&w->seed) % w->holds;
	uint64_t held = w->size[i] <= MIB ? PAGE : 0, most;
	fakegpu_flight_begin(&held, 1);
	NEED(cuMemFree_v2(w->held[i]) == CUDA_SUCCESS);
	fakegpu_flight_end(&most, 1);
	w->holds--;
	w->held[i] = w->held[w->holds];
	w->size[i] = w->size[w->holds];
}

static void *work(void *with)
{
	struct worker *w = with;
	double end = now() + w->mix->seconds;
	use_device(0);
	for (int filling = 1; now() < end;) {
		if (w->holds == SLOTS || rand_r(&w->seed) % 40 == 0)
			filling = !filling;
		if (w->holds < SLOTS && (!w->holds || (rand_r(&w->seed) % 4 != 0) == filling))
			take_one(w);
		else
			give_one(w);
	}
	while (w->holds)
		give_one(w);
	return NULL;
}

/* Runs threads; all their memory is free again afterwards, and all of it can be had. */
static long work_together(const struct mix *m, int threads, unsigned seed)
{
	static struct worker w[16];
	pthread_t t[16];
	long given = 0, refused = 0, wrongly = 0;
	for (int i = 0; i < threads; i++) {
		w[i] = (struct worker){.mix = m, .seed = seed * 1000 + (unsigned)i};
		NEED(!pthread_create(&t[i], NULL, work, &w[i]));
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(t[i], NULL);
		given += w[i].given;
		refused += w[i].refused;
		wrongly += w[i].wrongly;
	}
	if (getenv("PROBE_TELL"))
		printf("    %d threads: %ld given, %ld refused\n", threads, given, refused);
	NEED(wrongly == 0);
	return refused;
}

static void take_everything(uint64_t bytes)
{
	CUdeviceptr at;
	use_device(0);
	NEED(cuMemAlloc_v2(&at, bytes) == CUDA_SUCCESS && cuMemFree_v2(at) == CUDA_SUCCESS);
	NEED(left() == bytes && fakegpu_used(0) == LIMIT - bytes);
}

static void threads_of(const struct mix *m, int least, int most)
{
	use_device(0);
	for (int n = least; n <= most; n *= 2) {
		(void)work_together(m, n, (unsigned)n);
		take_everything(LIMIT);
	}
}

void probe_exact_small(void)
{
	threads_of(&(struct mix){1, MIB, PITCHED, 0.4}, 2, 16);
	threads_of(&(struct mix){1, MIB, WAYS, 0.4}, 8, 8);
}

void probe_exact_page(void)
{
	threads_of(&(struct mix){MIB, PAGE, 1, 0.5}, 8, 8);
}

void probe_exact_mixed(void)
{
	threads_of(&(struct mix){1, 5 * MIB, WAYS, 0.5}, 4, 16);
}

void probe_exact_processes(void)
{
	struct mix m = {1, MIB / 4, WAYS, 0.8};
	int status;
	for (unsigned i = 0; i < 24; i++)
		if (fork() == 0) {
			alarm(50);
			use_device(0);
			(void)work_together(&m, 1 + (int)(i % 3), i);
			exit(0);
		}
	while (wait(&status) > 0)
		NEED(status == 0);
	take_everything(LIMIT);
}

/* After a refusal: what the driver would have taken, had it been asked. */
static uint64_t would_take(int way, uint64_t bytes)
{
	static CUresult (*plain)(CUdeviceptr *, size_t),
		(*managed)(CUdeviceptr *, size_t, unsigned);
	static CUresult (*pitched)(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
	CUdeviceptr at;
	size_t pitch;
	plain = (CUresult(*)(CUdeviceptr *, size_t))fakegpu_function("cuMemAlloc_v2");
	managed = (CUresult(*)(CUdeviceptr *, size_t, unsigned))fakegpu_function(
		"cuMemAllocManaged");
	pitched = (CUresult(*)(CUdeviceptr *, size_t *, size_t, size_t, unsigned))fakegpu_function(
		"cuMemAllocPitch_v2");
	fakegpu_dry_begin();
	if (way == PLAIN)
		(void)plain(&at, bytes);
	else if (way == MANAGED)
		(void)managed(&at, bytes, 1);
	else
		(void)pitched(&at, &pitch, bytes > 700 ? 700 : bytes, (bytes + 699) / 700, 4);
	return fakegpu_dry_end();
}

/* One step of the walk: takes or gives, in one of the contexts. 1 when it was refused. */
static int walk(struct worker *w)
{
	int way = rand_r(&w->seed) % WAYS;
	uint64_t bytes = random_size(w->mix, &w->seed);
	if (w->holds && (w->holds == SLOTS || rand_r(&w->seed) % 5 < 2))
		return give_one(w), 0;
	CUresult r = ask(way, &w->held[w->holds], bytes);
	NEED(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
	w->size[w->holds] = bytes;
	w->holds += r == CUDA_SUCCESS;
	if (r != CUDA_SUCCESS)
		NEED(fakegpu_used(0) + would_take(way, bytes) > LIMIT);
	return r != CUDA_SUCCESS;
}

void probe_exact_walk(void)
{
	static const struct mix mixes[] = {{1, 4096, 0, 0}, {1, MIB, 0, 0}, {1, 5 * MIB, 0, 0}};
	static struct worker w;
	CUcontext context[3] = {NULL};
	int refused = 0;
	use_device(0);
	NEED(cuCtxCreate_v2(&context[1], 0, 0) == CUDA_SUCCESS &&
	     cuCtxCreate_v2(&context[2], 0, 0) == CUDA_SUCCESS);
	for (int i = 0; i < 60000; i++) {
		w.mix = &mixes[i / 500 % 3];
		w.seed += i == 0;
		if (i % 50 == 0 && rand_r(&w.seed) % 3)
			NEED(cuCtxSetCurrent(context[1 + rand_r(&w.seed) % 2]) == CUDA_SUCCESS);
		else if (i % 50 == 0)
			use_device(0);
		refused += walk(&w);
		NEED(fakegpu_used(0) <= LIMIT && left() == LIMIT - fakegpu_used(0));
	}
	NEED(refused > 1000);
	while (w.holds)
		give_one(&w);
	take_everything(LIMIT);
}

static pthread_barrier_t line;

static void *last_page(void *rounds)
{
	CUdeviceptr at;
	long refused = 0;
	use_device(0);
	for (long i = 0; i < (long)rounds; i++) {
		pthread_barrier_wait(&line);
		CUresult r = cuMemAlloc_v2(&at, 4096);
		refused += r != CUDA_SUCCESS;
		if (i % 3)
			/* else the first are freed while the last are made */
			pthread_barrier_wait(&line);
		NEED(r != CUDA_SUCCESS || cuMemFree_v2(at) == CUDA_SUCCESS);
		if (i % 3 == 0)
			pthread_barrier_wait(&line);
	}
	return (void *)refused;
}

/* 8 threads take 480 blocks in all until the page is empty once more: it holds 512. */
static void *last_page_churn(void *rounds)
{
	CUdeviceptr at;
	long refused = 0;
	use_device(0);
	for (long i = 0; i < (long)rounds * 60; i++) {
		if (i % 60 == 0)
			pthread_barrier_wait(&line);
		CUresult r = cuMemAlloc_v2(&at, 4096);
		refused += r != CUDA_SUCCESS;
		NEED(r != CUDA_SUCCESS || cuMemFree_v2(at) == CUDA_SUCCESS);
	}
	return (void *)refused;
}

void probe_exact_last(void)
{
	pthread_t t[8];
	void *refused;
	use_device(0);
	NEED(take(LIMIT - PAGE) == CUDA_SUCCESS && !pthread_barrier_init(&line, NULL, 8));
	for (int churn = 0; churn < 2; churn++) {
		long rounds = churn ? 60 : 300;
		for (int i = 0; i < 8; i++)
			NEED(!pthread_create(&t[i], NULL, churn ? last_page_churn : last_page,
					     (void *)rounds));
		for (int i = 0; i < 8; i++)
			NEED(!pthread_join(t[i], &refused) && refused == NULL);
		NEED(left() == PAGE && fakegpu_used(0) == LIMIT - PAGE);
	}
}

/* Contexts come and go, with all that was made in them, while others allocate at the limit. */
static void *work_in_contexts(void *with)
{
	struct worker *w = with;
	double end = now() + w->mix->seconds;
	CUcontext context;
	NEED(cuInit(0) == CUDA_SUCCESS);
	while (now() < end) {
		NEED(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
		for (int i = 0; i < 60; i++) {
			CUresult r = ask(rand_r(&w->seed) % WAYS, &w->held[w->holds],
					 random_size(w->mix, &w->seed));
			w->holds += r == CUDA_SUCCESS && w->holds < SLOTS - 1;
			if (w->holds && rand_r(&w->seed) % 3 == 0)
				NEED(cuMemFree_v2(w->held[--w->holds]) == CUDA_SUCCESS);
		}
		NEED(cuCtxDestroy_v2(context) == CUDA_SUCCESS);
		w->holds = 0;
	}
	return NULL;
}

void probe_exact_contexts(void)
{
	static const struct mix m = {1, 3 * MIB, WAYS, 1.0};
	static struct worker w[6];
	pthread_t t[6];
	use_device(0);
	for (unsigned i = 0; i < 6; i++) {
		w[i] = (struct worker){.mix = &m, .seed = i};
		NEED(!pthread_create(&t[i], NULL, i < 3 ? work_in_contexts : work, &w[i]));
	}
	for (int i = 0; i < 6; i++)
		pthread_join(t[i], NULL);
	take_everything(LIMIT);
}

/* Each small block has a page of its own: foreseen was that the second one shares the first's. */
void probe_exact_unpacked(void)
{
	CUdeviceptr small;
	use_device(0);
	NEED(take(LIMIT - 3 * PAGE) == CUDA_SUCCESS);
	NEED(take(4096) == CUDA_SUCCESS && take(4096) == CUDA_SUCCESS && left() == PAGE);
	NEED(cuMemAlloc_v2(&small, 4096) == CUDA_SUCCESS && left() == 0);
	for (int i = 0; i < 3; i++)
		NEED(take(4096) == CUDA_ERROR_OUT_OF_MEMORY && left() == 0 &&
		     fakegpu_used(0) == LIMIT);
	NEED(cuMemFree_v2(small) == CUDA_SUCCESS && left() == PAGE &&
	     fakegpu_used(0) == LIMIT - PAGE);
	NEED(take(4096) == CUDA_SUCCESS && left() == 0);
}

static void *churn(void *with)
{
	unsigned seed = (unsigned)(long)with;
	CUdeviceptr at[4];
	use_device(0);
	for (int i = 0; i < 60; i++) {
		int n = 0;
		while (n < 4 && cuMemAlloc_v2(&at[n], (uint64_t)rand_r(&seed) % (3 * MIB) + 1) ==
					CUDA_SUCCESS)
			n++;
		while (n)
			NEED(cuMemFree_v2(at[--n]) == CUDA_SUCCESS);
	}
	return NULL;
}

/* NVML knows this process, so what it has beyond contexts and data is charged as code: nothing. */
void probe_exact_code(void)
{
	pthread_t t[16];
	CUdeviceptr at;
	setenv("FAKEGPU_CONTEXT", "2", 1);
	use_device(0);
	for (long round = 0; round < 30; round++) {
		for (long i = 0; i < 16; i++)
			NEED(!pthread_create(&t[i], NULL, churn, (void *)(round * 16 + i)));
		for (int i = 0; i < 16; i++)
			pthread_join(t[i], NULL);
		NEED(cuMemAlloc_v2(&at, LIMIT - PAGE) == CUDA_SUCCESS &&
		     cuMemFree_v2(at) == CUDA_SUCCESS);
		usleep(round % 4 ? 105000 : 0); /* NVML is looked at again in the next */
	}
}
