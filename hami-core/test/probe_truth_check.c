/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_truth_check.c: judges refusals by the fake driver's own count, and looks, when all memory
 * has been freed, whether the whole limit is to be had at once.
 */
#define _GNU_SOURCE
#include "probe_truth.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void count(uint64_t *counter)
{
	__atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

static int is_alone(void)
{
	return board->program.processes == 1 && board->program.threads == 1;
}

static int somebody_died(void)
{
	int64_t when = __atomic_load_n(&board->killed_ms, __ATOMIC_ACQUIRE);
	return when && now_ms() - when < TRUTH_AFTER_A_DEATH_MS;
}

static void false_refusal(struct thread *t, const struct piece *p, uint64_t used,
			  uint64_t most)
{
	count(&board->falsely);
	note_call(t, "REFUSED FALSELY", p, CUDA_ERROR_OUT_OF_MEMORY);
	fail("false refusal of %s, %llu bytes (takes at most %llu) on device %d: %llu used, %llu "
	     "with what was in flight, limit %llu",
	     kind_names[p->kind], (unsigned long long)p->bytes, (unsigned long long)p->ask,
	     p->device, (unsigned long long)used, (unsigned long long)most,
	     (unsigned long long)truth_most(&board->program, p->device));
}

/*
 * Makes the same call past the library to learn what it takes. 0 when the driver refuses it of
 * itself.
 */
static int try_past(struct thread *t, const struct piece *p, uint64_t *need)
{
	struct piece again = *p;
	fakegpu_dry_begin();
	CUresult r = make(t, &again, &bare);
	*need = fakegpu_dry_end();
	if (r == CUDA_SUCCESS)
		drop(t, &again, &bare);
	return r == CUDA_SUCCESS || (r == CUDA_ERROR_OUT_OF_MEMORY && *need);
}

/* Nobody else runs, so what is used is known before and after the call. */
static void judge_alone(struct thread *t, const struct piece *p, uint64_t before)
{
	uint64_t limit = truth_most(&board->program, p->device), after = fakegpu_used(p->device),
		 need;
	if (!try_past(t, p, &need))
		return;
	if (need <= limit && before <= limit - need && after <= limit - need)
		false_refusal(t, p, after, after + need);
}

static void judge(struct thread *t, const struct piece *p, uint64_t before, const uint64_t *most)
{
	uint64_t limit = truth_most(&board->program, p->device), need;
	count(&board->refusals);
	if (is_alone()) {
		count(&board->judged);
		judge_alone(t, p, before);
		return;
	}
	if (p->ask > limit || most[p->device] == UINT64_MAX)
		return;
	if (somebody_died()) {
		count(&board->late);
		return;
	}
	count(&board->judged);
	if (most[p->device] <= limit && try_past(t, p, &need))
		false_refusal(t, p, before, most[p->device]);
}

/* No instant was missed: the fake driver keeps the highest count. */
static void check_peak(const struct thread *t, const struct piece *p, const char *verb)
{
	for (int i = 0; i < TRUTH_DEVICES; i++) {
		uint64_t high = fakegpu_used_high(i), limit = board->program.limit[i];
		if (!limit || high <= limit)
			continue;
		fail("device %d: %llu bytes were used at one instant, %llu KiB over the limit; "
		     "thread %d saw it first, at: %s %s %llu bytes, device %d",
		     i, (unsigned long long)high, (unsigned long long)((high - limit) >> 10),
		     t->index, verb, kind_names[p->kind], (unsigned long long)p->bytes, p->device);
	}
}

CUresult attempt(struct thread *t, struct piece *p)
{
	uint64_t asks[TRUTH_DEVICES] = {0}, most[TRUTH_DEVICES], before = 0;
	/* What can never be had is not in flight: nobody has to wait for it. */
	if (p->ask <= truth_most(&board->program, p->device))
		asks[p->device] = p->ask;
	if (is_alone())
		before = fakegpu_used(p->device);
	fakegpu_flight_begin(asks, TRUTH_DEVICES);
	CUresult r = make(t, p, &via);
	fakegpu_flight_end(most, TRUTH_DEVICES);
	count(&board->calls);
	note_call(t, "make", p, r);
	check_peak(t, p, "make");
	if (r == CUDA_ERROR_OUT_OF_MEMORY)
		judge(t, p, before, most);
	else if (r != CUDA_SUCCESS && p->ask <= TRUTH_CARD)
		fail("a call failed with %d: see the last calls", r);
	return r;
}

void flight_without_ask(void)
{
	fakegpu_flight_begin((const uint64_t[TRUTH_DEVICES]){0}, TRUTH_DEVICES);
}

void flight_over(void)
{
	uint64_t most[TRUTH_DEVICES];
	fakegpu_flight_end(most, TRUTH_DEVICES);
}

CUresult dispose(struct thread *t, const struct piece *p)
{
	int built = p->kind == KIND_MAPPING || p->kind == KIND_SPARSE || p->kind == KIND_GRAPH ||
		    p->kind == KIND_CAPTURE || p->kind == KIND_CONTEXT;
	/* What is freed into a pool is the pool's until the library has heard of it. */
	int pooled = p->kind == KIND_ASYNC || p->kind == KIND_FROM_POOL;
	uint64_t asks[TRUTH_DEVICES] = {0};
	asks[p->device] = pooled ? p->ask : 0;
	use_device(t, p->device);
	fakegpu_flight_begin(asks, TRUTH_DEVICES);
	CUresult r = built ? demolish(t, p) : drop(t, p, &via);
	flight_over();
	count(&board->calls);
	note_call(t, "free", p, r);
	check_peak(t, p, "free");
	if (r != CUDA_SUCCESS)
		fail("a freeing failed with %d: see the last calls", r);
	return r;
}

/* Blocks of `bytes` until one is refused, all freed again: their number. */
static uint64_t blocks_to_have(uint64_t bytes, uint64_t most)
{
	CUdeviceptr *at = calloc(most + 1, sizeof *at);
	uint64_t n = 0;
	while (at && n <= most && via.cuMemAlloc_v2(&at[n], bytes) == CUDA_SUCCESS)
		n++;
	for (uint64_t i = 0; i < n; i++)
		if (via.cuMemFree_v2(at[i]))
			fail("a block that was just allocated cannot be freed");
	free(at);
	return n;
}

/* What is not used of a device is to be had by pages, in one block, and not a page more. */
static void check_device(struct thread *t, int device)
{
	uint64_t limit = truth_most(&board->program, device), used = fakegpu_used(device);
	uint64_t left = used < limit ? limit - used : 0, pages = left / TRUTH_PAGE, had;
	size_t told = 0, all = 0;
	CUdeviceptr at;
	use_device(t, device);
	if (used && !board->program.context_mib)
		fail("device %d: %llu bytes are used when all was freed", device,
		     (unsigned long long)used);
	if (via.cuMemGetInfo_v2(&told, &all) || told != left || all != limit)
		fail("device %d: told %llu of %llu bytes when %llu of %llu are free", device,
		     (unsigned long long)told, (unsigned long long)all, (unsigned long long)left,
		     (unsigned long long)limit);
	if ((had = blocks_to_have(TRUTH_PAGE, pages)) != pages)
		fail("device %d: %llu pages to be had of %llu", device, (unsigned long long)had,
		     (unsigned long long)pages);
	if (pages && via.cuMemAlloc_v2(&at, left))
		fail("device %d: %llu bytes are not to be had as one block", device,
		     (unsigned long long)left);
	else if (pages && via.cuMemFree_v2(at))
		fail("a block that was just allocated cannot be freed");
	if (via.cuMemAlloc_v2(&at, left + 1) == CUDA_SUCCESS)
		fail("device %d: a byte more than the limit is to be had", device);
}

/*
 * With one page left, all threads allocate small blocks that fit into it together: all must get
 * theirs.
 */
static void last_page(struct thread *t, pthread_barrier_t *all, int device)
{
	static CUdeviceptr filler; /* of thread 0, which the others wait for */
	uint64_t limit = truth_most(&board->program, device), used = fakegpu_used(device);
	uint64_t block = TRUTH_PAGE / 512 / (uint64_t)board->program.threads * 512;
	CUdeviceptr mine = 0;
	use_device(t, device);
	pthread_barrier_wait(all);
	if (t->index == 0 && via.cuMemAlloc_v2(&filler, limit - used - TRUTH_PAGE))
		fail("device %d: all but a page is not to be had", device);
	pthread_barrier_wait(all);
	block = block > MIB ? MIB : 1 + truth_below(&t->random, block);
	CUresult r = via.cuMemAlloc_v2(&mine, block);
	if (r)
		fail("device %d: %d threads share the last page, and thread %d was refused its "
		     "%llu bytes",
		     device, board->program.threads, t->index, (unsigned long long)block);
	pthread_barrier_wait(all);
	if (r == CUDA_SUCCESS)
		via.cuMemFree_v2(mine);
	pthread_barrier_wait(all);
	if (t->index == 0)
		via.cuMemFree_v2(filler);
	pthread_barrier_wait(all);
}

void check_everything(struct thread *t, pthread_barrier_t *all)
{
	for (int i = 0; i < TRUTH_DEVICES; i++) {
		if (t->index == 0)
			check_device(t, i);
		pthread_barrier_wait(all);
		if (board->program.limit[i] > fakegpu_used(i) + TRUTH_PAGE)
			for (int k = 0; k < 4 && board->program.threads > 1; k++)
				last_page(t, all, i);
		pthread_barrier_wait(all);
	}
}
