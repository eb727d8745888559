/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_pools.c: pools of two devices, through streams of either. Limits are in
 * PROBE_LIMIT_<device>, MiB; 0: none.
 */
#define _GNU_SOURCE
#include "probe_sized.h"

#include <pthread.h>
#include <string.h>

CUresult cuDeviceSetMemPool(CUdevice, CUmemoryPool);
CUresult cuMemPoolGetAttribute(CUmemoryPool, int, void *);

#define PIECES 24
#define POOLS 4
#define GRANULE (32 * MIB)

static CUmemoryPool made_on(CUdevice device)
{
	CUmemPoolProps props = {.allocType = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
	CUmemoryPool pool;
	NEED(cuMemPoolCreate(&pool, &props) == CUDA_SUCCESS);
	return pool;
}

static CUstream stream_on(CUdevice device)
{
	CUstream stream;
	use_device(device);
	NEED(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
	return stream;
}

/* A pool of the limited device through a stream of the other, and the other way round. */
static void across(CUmemoryPool pool, CUdevice device, CUstream stream)
{
	CUdeviceptr at;
	uint64_t limit = limit_of(device), base = truth_used(device);
	if (limit) {
		NEED(cuMemAllocFromPoolAsync(&at, limit + 1, pool, stream) ==
			     CUDA_ERROR_OUT_OF_MEMORY &&
		     truth_used(device) == base);
		NEED(cuMemAllocFromPoolAsync(&at, limit, pool, stream) == CUDA_SUCCESS &&
		     truth_used(device) == limit);
		NEED(take_on(device, 1) == CUDA_ERROR_OUT_OF_MEMORY && left_on(device) == 0);
	} else {
		NEED(cuMemAllocFromPoolAsync(&at, 256 * MIB, pool, stream) == CUDA_SUCCESS &&
		     truth_used(device) == 256 * MIB);
		NEED(left_on(1 - device) ==
		     limit_of(1 - device)); /* it takes nothing of the stream's device */
	}
	NEED(cuMemFreeAsync(at, stream) == CUDA_SUCCESS);
	use_device(device);
	NEED(cuCtxSynchronize() == CUDA_SUCCESS && cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS);
	NEED(truth_used(device) == base && (!limit || left_on(device) == limit));
}

/* Pools that the library saw made, the drivers' own, and those that were made past it. */
void probe_across(void)
{
	CUmemoryPool standard, unseen;
	CUmemPoolProps props = {.allocType = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUresult (*create)(CUmemoryPool *, const CUmemPoolProps *) = bare("cuMemPoolCreate");
	for (CUdevice d = 0; d < 2; d++) {
		CUstream stream = stream_on(1 - d);
		use_device(1 - d);
		across(made_on(d), d, stream);
		NEED(cuDeviceGetDefaultMemPool(&standard, d) == CUDA_SUCCESS);
		across(standard, d, stream);
		props.location.id = d;
		NEED(create(&unseen, &props) == CUDA_SUCCESS &&
		     cuDeviceSetMemPool(d, unseen) == CUDA_SUCCESS);
		across(unseen, d, stream);
		use_device(1 - d);
		across(made_on(d), d, NULL);
		NEED(truth_high(d) <= (limit_of(d) ? limit_of(d) : 256 * MIB));
	}
}

struct piece {
	CUdeviceptr at;
	CUstream stream;
};

static struct {
	CUmemoryPool pool[POOLS];
	CUdevice device[POOLS];
	int threads;
	pthread_barrier_t start;
} shared;

/* What a pool takes more for `bytes`, as the fake does it. */
static uint64_t growth(CUmemoryPool pool, uint64_t bytes)
{
	uint64_t reserved, used;
	NEED(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) ==
	     CUDA_SUCCESS);
	NEED(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) == CUDA_SUCCESS);
	uint64_t want = (used + (bytes + 511) / 512 * 512 + GRANULE - 1) / GRANULE * GRANULE;
	return want > reserved ? want - reserved : 0;
}

static void allocate(struct piece *p, CUstream *stream, uint64_t *seed)
{
	int k = (int)draw(seed, POOLS), s = (int)draw(seed, 2);
	uint64_t bytes = draw(seed, 4) ? 1 + draw(seed, 3 * MIB) : 1 + draw(seed, 64 * MIB);
	CUdevice device = shared.device[k];
	CUresult r = draw(seed, 8)
			     ? cuMemAllocFromPoolAsync(&p->at, bytes, shared.pool[k], stream[s])
			     : (device = s, k = s, cuMemAllocAsync(&p->at, bytes, stream[s]));
	p->stream = stream[s];
	if (r == CUDA_SUCCESS)
		return;
	p->at = 0;
	NEED(r == CUDA_ERROR_OUT_OF_MEMORY);
	if (shared.threads == 1) /* nothing is refused that would have fitted */
		NEED(limit_of(device) &&
		     truth_used(device) + growth(shared.pool[k], bytes) > limit_of(device));
}

static void *random_program(void *argument)
{
	uint64_t seed = 0x9e3779b97f4a7c15ULL * (1 + (uintptr_t)argument);
	struct piece piece[PIECES] = {{0}};
	CUstream stream[2] = {stream_on(0), stream_on(1)};
	pthread_barrier_wait(&shared.start);
	for (int i = 0; i < 100000 / shared.threads; i++) {
		struct piece *p = &piece[draw(&seed, PIECES)];
		if (p->at) {
			NEED((draw(&seed, 3) ? cuMemFreeAsync(p->at, p->stream)
					     : cuMemFree_v2(p->at)) == CUDA_SUCCESS);
			p->at = 0;
		} else {
			allocate(p, stream, &seed);
		}
		if (!draw(&seed, 10))
			use_device((CUdevice)draw(&seed, 2));
		if (!draw(&seed, 20))
			NEED(cuCtxSynchronize() == CUDA_SUCCESS);
		if (!draw(&seed, 20))
			NEED(cuMemPoolTrimTo(shared.pool[draw(&seed, POOLS)],
					     draw(&seed, 64 * MIB)) == CUDA_SUCCESS);
	}
	for (int i = 0; i < PIECES; i++)
		NEED(!piece[i].at || cuMemFreeAsync(piece[i].at, piece[i].stream) == CUDA_SUCCESS);
	return NULL;
}

/* The first two pools are the devices' own. */
static void random_threads(int threads)
{
	pthread_t thread[16];
	shared.threads = threads;
	pthread_barrier_init(&shared.start, NULL, (unsigned)threads);
	for (int i = 0; i < POOLS; i++) {
		use_device(i % 2);
		shared.device[i] = i % 2;
		if (i < 2)
			NEED(cuDeviceGetDefaultMemPool(&shared.pool[i], i) == CUDA_SUCCESS);
		else
			shared.pool[i] = made_on(i % 2);
	}
	for (int i = 0; i < threads; i++)
		NEED(!pthread_create(&thread[i], NULL, random_program, (void *)(uintptr_t)i));
	for (int i = 0; i < threads; i++)
		NEED(!pthread_join(thread[i], NULL));
	for (CUdevice d = 0; d < 2; d++) {
		printf("device %d: at most %llu of %llu MiB\n", d,
		       (unsigned long long)(truth_high(d) / MIB),
		       (unsigned long long)(limit_of(d) / MIB));
		NEED(!limit_of(d) || truth_high(d) <= limit_of(d));
		use_device(d);
		NEED(cuCtxSynchronize() == CUDA_SUCCESS);
		for (int i = 0; i < POOLS; i++)
			NEED(cuMemPoolTrimTo(shared.pool[i], 0) == CUDA_SUCCESS);
		NEED(truth_used(d) == 0 &&
		     (!limit_of(d) ||
		      take_on(d, limit_of(d)) == CUDA_SUCCESS)); /* all of it is to have */
	}
}

void probe_alone(void)
{
	random_threads(1);
}

void probe_together(void)
{
	random_threads(8);
}

/* Three threads meet at the limit of one pool: there is room for two of them, and two have it. */
static struct {
	CUmemoryPool pool;
	CUdeviceptr at[3];
} meeting;

static void *meet(void *mine)
{
	CUdeviceptr *at = mine;
	use_device(0);
	pthread_barrier_wait(&shared.start);
	if (cuMemAllocFromPoolAsync(at, 30 * MIB, meeting.pool, NULL) != CUDA_SUCCESS)
		*at = 0;
	return NULL;
}

void probe_meeting(void)
{
	pthread_t thread[3];
	pthread_barrier_init(&shared.start, NULL, 3);
	use_device(0);
	meeting.pool = made_on(0);
	for (int round = 0; round < 500; round++) {
		int given = 0;
		for (int i = 0; i < 3; i++)
			NEED(!pthread_create(&thread[i], NULL, meet, &meeting.at[i]));
		for (int i = 0; i < 3; i++)
			NEED(!pthread_join(thread[i], NULL));
		for (int i = 0; i < 3; i++) {
			given += meeting.at[i] != 0;
			NEED(!meeting.at[i] || cuMemFreeAsync(meeting.at[i], NULL) == CUDA_SUCCESS);
		}
		NEED(given == 2 && truth_high(0) <= limit_of(0));
		NEED(cuCtxSynchronize() == CUDA_SUCCESS &&
		     cuMemPoolTrimTo(meeting.pool, 0) == CUDA_SUCCESS);
	}
}

/* Waits for the work of a pool in one of three ways. */
static void wait_by(int way, CUstream stream)
{
	if (way == 0)
		NEED(cuCtxSynchronize() == CUDA_SUCCESS);
	else if (way == 1)
		NEED(cuCtxSynchronize_v2(NULL) == CUDA_SUCCESS);
	else
		NEED(cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

/* What a pool of one process gives back when it has waited, another process has at once. */
void probe_given_back(void)
{
	int go[2], done[2];
	char c;
	NEED(!pipe(go) && !pipe(done));
	if (fork() == 0) {
		CUdeviceptr at;
		CUstream stream = stream_on(0);
		close(go[1]);
		for (int way = 0; read(go[0], &c, 1) == 1; way++) {
			NEED(cuMemAllocAsync(&at, 60 * MIB, stream) == CUDA_SUCCESS);
			NEED(cuMemFreeAsync(at, stream) == CUDA_SUCCESS);
			wait_by(way, stream);
			NEED(write(done[1], "x", 1) == 1);
		}
		_exit(0);
	}
	close(done[1]);
	use_device(0);
	for (int way = 0; way < 3; way++) {
		CUdeviceptr at;
		NEED(write(go[1], "x", 1) == 1 && read(done[0], &c, 1) == 1 && truth_used(0) == 0);
		NEED(cuMemAlloc_v2(&at, limit_of(0)) == CUDA_SUCCESS && cuMemFree_v2(at) == CUDA_SUCCESS);
	}
}

/* A driver whose pools grow by FAKEGPU_POOL MiB: after the first growth the library knows it. */
void probe_other_granule(void)
{
	CUdeviceptr at;
	uint64_t granule = strtoull(getenv("FAKEGPU_POOL"), NULL, 10) * MIB;
	use_device(0);
	CUmemoryPool pool = made_on(0);
	NEED(cuMemAllocFromPoolAsync(&at, MIB, pool, NULL) == CUDA_SUCCESS &&
	     left() == limit_of(0) - granule);
	uint64_t rest = limit_of(0) - granule;
	NEED(cuMemAllocFromPoolAsync(&at, rest + granule - MIB + 1, pool, NULL) ==
	     CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemAllocFromPoolAsync(&at, rest - rest % granule, pool, NULL) == CUDA_SUCCESS &&
	     left() == rest % granule);
	NEED(truth_high(0) <= limit_of(0));
}
