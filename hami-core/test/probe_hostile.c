/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_hostile.c: an innocent process for hostile_test.c: it takes and gives memory of all kinds
 * until it is told to stop, measures each call, and compares what the card says it has with the
 * limit. Its place on the board is PROBE_PLACE.
 */
#define _GNU_SOURCE
#include "probe.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "hostile.h"
#include "state.h"

#define HELD 8

static struct hostile_board *board;
static struct hostile_worker *self;
static const struct fg_state *card;

struct piece {
	int kind;
	CUdeviceptr at;
	CUmemGenericAllocationHandle handle;
};

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The descriptor stays open: closing one of the card's state would drop our locks there. */
static void *map(const char *path, size_t size)
{
	int fd = open(path, O_RDWR);
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	NEED(fd >= 0 && at != MAP_FAILED);
	return at;
}

/* What the card has given this process, on both devices: the unlimited one is not used here. */
static uint64_t given(void)
{
	for (uint64_t i = 0; i < card->high && i < FG_MAX_PROCESSES; i++)
		if (card->process[i].in_use && card->process[i].pid == (uint32_t)getpid())
			return card->process[i].used[0] + card->process[i].used[1];
	return 0;
}

static CUresult piece_take(struct piece *p, int kind, uint64_t bytes)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	p->kind = kind;
	switch (kind) {
	case 0: return cuMemAlloc_v2(&p->at, bytes);
	case 1: return cuMemAllocManaged(&p->at, bytes, 1);
	default: return cuMemCreate(&p->handle, bytes / (2 * MIB) * 2 * MIB, &prop, 0);
	}
}

static CUresult piece_give(const struct piece *p)
{
	return p->kind < 2 ? cuMemFree_v2(p->at) : cuMemRelease(p->handle);
}

static void begin(void)
{
	__atomic_store_n(&self->since_ns, now(), __ATOMIC_RELEASE);
}

static void end(void)
{
	uint64_t took = now() - self->since_ns;
	__atomic_store_n(&self->since_ns, 0, __ATOMIC_RELEASE);
	self->longest_ns = took > self->longest_ns ? took : self->longest_ns;
	self->operations++;
	self->over += given() > board->limit;
}

/* One call: takes or gives. */
static void step(struct piece *held, int *n, unsigned *seed)
{
	if (*n && rand_r(seed) % 2) {
		begin();
		NEED(piece_give(&held[--*n]) == CUDA_SUCCESS);
		end();
	} else if (*n < HELD) {
		int kind = rand_r(seed) % 3;
		uint64_t bytes = 2 * MIB + (uint64_t)rand_r(seed) % (14 * MIB);
		begin();
		CUresult r = piece_take(&held[*n], kind, bytes);
		end();
		NEED(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
		*n += r == CUDA_SUCCESS;
		self->refusals += r != CUDA_SUCCESS;
	}
}

void probe_hostile(void)
{
	struct piece held[HELD];
	int n = 0;
	unsigned seed = (unsigned)getpid();
	char path[512];
	board = map(getenv("PROBE_BOARD"), sizeof *board);
	self = &board->worker[atoi(getenv("PROBE_PLACE"))];
	begin();
	use_device(0);
	snprintf(path, sizeof path, "%s/state", getenv("FAKEGPU_DIR"));
	card = map(path, sizeof *card);
	end();
	while (!__atomic_load_n(&board->stop, __ATOMIC_ACQUIRE)) {
		step(held, &n, &seed);
		if (rand_r(&seed) % 64 == 0) {
			begin();
			(void)left();
			end();
		}
	}
}
