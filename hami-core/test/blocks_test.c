/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks_test.c: what goes wrong between a reservation and its settling, one thing at a time. The
 * driver, the gate and the memory of this process are played here; the books are real.
 */
#define _GNU_SOURCE
#include "testing.h"

#include <pthread.h>

#include "driver/resolve.h"
#include "memory/blocks.h"
#include "memory/overhead.h"
#include "memory/overflow.h"
#include "model/limit.h"
#include "platform/log.h"
#include "settings/components.h"
#include "settings/settings.h"
#include "shm/region.h"

#define P PAGE_BYTES
#define LIMIT (4 * P)
#define AT (100 * P)

static int driver_frees = 1, frees, mallocs_left = -1; /* -1: as many as are wanted */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
	if (mallocs_left == 0)
		return NULL;
	mallocs_left -= mallocs_left > 0;
	return __real_malloc(size);
}

static CUresult play_free(CUdeviceptr at)
{
	(void)at;
	frees++;
	return driver_frees ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

void *originals[SYMBOL_COUNT]; /* nothing is known: original_resolve is asked */

void *original_resolve(enum symbol_id id)
{
	return id == ID_cuMemFree_v2 ? (void *)play_free : NULL;
}

uint64_t settings_memory_limit(int index)
{
	(void)index;
	return LIMIT;
}

void overflow_freed(CUdeviceptr pointer)
{
	(void)pointer;
}

int charge_admit(struct charge *c)
{
	*c = (struct charge){.context = 7};
	return c->device;
}

int charge_reserve(struct charge *c, int device, uint64_t bytes)
{
	c->reserved = limit_round_to_pages(bytes);
	return region_reserve(device, c->reserved, LIMIT) ? CUDA_ERROR_OUT_OF_MEMORY : 0;
}

unsigned overhead_epoch(void)
{
	return 0;
}

void components_refresh(int device)
{
	(void)device;
}

CUresult account_refuse(int device, uint64_t bytes)
{
	(void)device, (void)bytes;
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static struct limits limits = {.source = LIMITS_FILE};

static void start(void)
{
	char reason[256], path[] = "/tmp/vgpu-blocks-XXXXXX";
	int fd = mkstemp(path);
	CHECK(fd >= 0 && !close(fd) && !unlink(path));
	snprintf(limits.region, sizeof limits.region, "%s", path);
	CHECK_EQ(region_attach(&limits, reason, sizeof reason), 0);
	CHECK(!unlink(path));
}

/* A call that the driver answers with a block at `at`. */
static CUresult make(uint64_t at, uint64_t bytes)
{
	struct block_charge c;
	if (block_alloc_begin(&c, PAGES_PLAIN, bytes))
		return c.charge.refusal;
	return block_alloc_end(&c, CUDA_SUCCESS, at, bytes);
}

static void drop(uint64_t at)
{
	struct table_entry e;
	CHECK(block_free_begin(at, &e));
	block_free_end(&e);
}

TEST("a call that the driver refuses leaves nothing reserved and nobody waiting")
{
	struct block_charge c;
	start();
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(block_alloc_begin(&c, PAGES_PLAIN, 512), 0);
		CHECK_EQ(block_alloc_end(&c, CUDA_ERROR_OUT_OF_MEMORY, 0, 512), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_EQ(region_used(0), 0);
	}
}

TEST("a block that cannot be remembered is freed, wherever memory runs out")
{
	start();
	for (int n = 0; n < 3; n++) {
		mallocs_left = n; /* the entry, the kind of packing, the page */
		CUresult r = make(AT, 512);
		int kept = r == CUDA_SUCCESS;
		mallocs_left = -1;
		CHECK_EQ(region_used(0), kept ? P : 0);
		CHECK_EQ(frees, n + 1 - kept);
		if (kept)
			drop(AT);
	}
	CHECK_EQ(region_used(0), 0);
	mallocs_left = 0;
	driver_frees = 0;
	CHECK_EQ(make(AT + P, 3 * P + 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(region_used(0), 4 * P); /* it is there, and nobody can free it any more */
}

TEST("a block that opens a page beyond the limit is given back, and the next is not let on")
{
	start();
	CHECK_EQ(make(AT, 512), CUDA_SUCCESS);
	CHECK_EQ(make(AT + 10 * P, 3 * P), CUDA_SUCCESS);
	CHECK_EQ(make(AT + P, 512), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(frees == 1 && region_used(0) == 4 * P);
	CHECK_EQ(make(AT + 512, 512), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(frees, 1); /* the driver was not asked */
	drop(AT);
	CHECK_EQ(region_used(0), 3 * P);
}

TEST("a block that cannot be given back is booked over the limit, until it is freed")
{
	start();
	driver_frees = 0;
	CHECK_EQ(make(AT, 512), CUDA_SUCCESS);
	CHECK_EQ(make(AT + 10 * P, 3 * P), CUDA_SUCCESS);
	CHECK_EQ(make(AT + P, 512), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQ(region_used(0), 5 * P);
	drop(AT + P);
	CHECK_EQ(region_used(0), 4 * P);
}

TEST("a block with a larger pitch than usual pays the rest, or is given back")
{
	struct block_charge c;
	start();
	CHECK_EQ(block_alloc_begin(&c, PAGES_PLAIN, 512), 0);
	CHECK_EQ(block_alloc_end(&c, CUDA_SUCCESS, AT, 3 * P), CUDA_SUCCESS);
	CHECK_EQ(region_used(0), 3 * P);
	CHECK_EQ(block_alloc_begin(&c, PAGES_PLAIN, 512), 0);
	CHECK_EQ(block_alloc_end(&c, CUDA_SUCCESS, AT + 10 * P, 2 * P), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(region_used(0) == 3 * P && frees == 1);
}

TEST("an address that the driver gives again takes the place of the block that was there")
{
	start();
	CHECK_EQ(make(AT, 3 * P + 1), CUDA_SUCCESS);
	CHECK_EQ(region_used(0), 4 * P);
	drop(AT);
	CHECK_EQ(make(AT, 2 * P), CUDA_SUCCESS);
	CHECK_EQ(make(AT, 2 * P), CUDA_SUCCESS);
	CHECK_EQ(region_used(0), 2 * P);
	CHECK_EQ(make(AT + 4 * P, 512), CUDA_SUCCESS);
	CHECK_EQ(make(AT + 4 * P, 512), CUDA_SUCCESS);
	CHECK_EQ(region_used(0), 3 * P);
	drop(AT + 4 * P);
	CHECK_EQ(region_used(0), 2 * P);
}

static struct table_entry leaving;

static void *finish_freeing(void *unused)
{
	block_free_end(&leaving);
	return unused;
}

/*
 * The driver has dropped the foreseen page: before, or while, the freeing thread waits to settle
 * it.
 */
TEST("a page that is freed while a block is made for it pays for the page that the block gets")
{
	struct block_charge c;
	pthread_t t;
	start();
	CHECK_EQ(make(AT, 512), CUDA_SUCCESS);
	CHECK_EQ(make(AT + 10 * P, 3 * P), CUDA_SUCCESS);
	CHECK_EQ(block_alloc_begin(&c, PAGES_PLAIN, 512), 0);
	CHECK(block_free_begin(AT, &leaving));
	CHECK(!pthread_create(&t, NULL, finish_freeing, NULL));
	usleep(20000);
	CHECK_EQ(region_used(0), 4 * P);
	CHECK_EQ(block_alloc_end(&c, CUDA_SUCCESS, AT + P, 512), CUDA_SUCCESS);
	pthread_join(t, NULL);
	CHECK(region_used(0) == 4 * P && frees == 0);
	drop(AT + P);
	CHECK_EQ(region_used(0), 3 * P);
}

TEST("a block that the driver did not free after all is booked again when its charge has moved")
{
	struct block_charge c;
	start();
	CHECK_EQ(make(AT, 512), CUDA_SUCCESS);
	CHECK_EQ(make(AT + 10 * P, 3 * P), CUDA_SUCCESS);
	CHECK_EQ(block_alloc_begin(&c, PAGES_PLAIN, 512), 0);
	CHECK(block_free_begin(AT, &leaving));
	CHECK_EQ(block_alloc_end(&c, CUDA_SUCCESS, AT + P, 512), CUDA_SUCCESS);
	block_free_cancel(&leaving);
	CHECK_EQ(region_used(0), 5 * P);
	drop(AT);
	drop(AT + P);
	CHECK_EQ(region_used(0), 3 * P);
}

TEST_MAIN
