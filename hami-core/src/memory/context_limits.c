/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/context_limits.h"

#include <pthread.h>
#include <stdlib.h>

#include "context/current.h"
#include "driver/resolve.h"
#include "memory/account.h"
#include "model/limit.h"
#include "settings/settings.h"
#include "shm/region.h"

#define LIMITS (CU_LIMIT_MALLOC_HEAP_SIZE + 1)
#define MOST (1ULL << 56) /* more is counted as this, so that sums do not overflow */

/* What a context has set aside, in bytes of pages. */
struct context_limits {
	CUcontext context;
	int device;
	int known[LIMITS];
	uint64_t initial[LIMITS]; /* before it was changed: part of what a context costs */
	uint64_t charged[LIMITS]; /* beyond that */
	int calls[LIMITS];        /* under way */
	struct context_limits *next;
};

static struct {
	pthread_mutex_t mutex; /* before the region's */
	struct context_limits *first;
} context_list = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct context_limits *find_record(CUcontext context)
{
	struct context_limits *a = context_list.first;
	while (a && a->context != context)
		a = a->next;
	return a;
}

static struct context_limits *find_or_add_record(CUcontext context, int device)
{
	struct context_limits *a = find_record(context);
	if (a || !(a = calloc(1, sizeof *a)))
		return a;
	*a = (struct context_limits){
		.context = context, .device = device, .next = context_list.first};
	return context_list.first = a;
}

/*
 * Threads that the current device can run at once: each has a stack. 1 when the driver does not
 * say.
 */
static uint64_t count_device_threads(void)
{
	CUdevice device;
	int processors = 0, each = 0;
	fn_cuCtxGetDevice current = ORIGINAL(cuCtxGetDevice);
	fn_cuDeviceGetAttribute get = ORIGINAL(cuDeviceGetAttribute);
	if (!current || !get || current(&device) != CUDA_SUCCESS ||
	    get(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) != CUDA_SUCCESS ||
	    get(&each, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device) != CUDA_SUCCESS)
		return 1;
	return (uint64_t)processors * (uint64_t)each;
}

static uint64_t bytes_of_limit(int limit, uint64_t value)
{
	uint64_t bytes, times = limit == CU_LIMIT_STACK_SIZE ? count_device_threads() : 1;
	if (__builtin_mul_overflow(value, times, &bytes) || bytes > MOST)
		return MOST;
	return limit_round_to_pages(bytes);
}

/* What the current context has of it now. */
static uint64_t current_bytes(int limit)
{
	size_t value = 0;
	fn_cuCtxGetLimit get = ORIGINAL(cuCtxGetLimit);
	return get && get(&value, limit) == CUDA_SUCCESS ? bytes_of_limit(limit, value) : 0;
}

/*
 * Enters a change; the bytes it needs more than are charged. UINT64_MAX: no memory to remember it
 * by.
 */
static uint64_t begin_change(const struct context_limit_change *c, uint64_t wanted)
{
	uint64_t more = UINT64_MAX;
	pthread_mutex_lock(&context_list.mutex);
	struct context_limits *a = find_or_add_record(c->context, c->device);
	if (a) {
		if (!a->known[c->limit])
			a->initial[c->limit] = current_bytes(c->limit);
		a->known[c->limit] = 1;
		a->calls[c->limit]++;
		uint64_t has = a->initial[c->limit] + a->charged[c->limit];
		more = wanted > has ? wanted - has : 0;
	}
	pthread_mutex_unlock(&context_list.mutex);
	return more;
}

/*
 * Settles a limit that nobody is changing by what the driver says to have set aside (needs the
 * mutex). It is asked under the mutex: an older answer could be from before another thread's
 * change.
 */
static void settle_limit(struct context_limits *a, int limit)
{
	uint64_t now = current_bytes(limit), first = a->initial[limit];
	uint64_t want = now > first ? now - first : 0;
	if (want < a->charged[limit])
		region_release(a->device, a->charged[limit] - want);
	else if (want > a->charged[limit])
		/* the driver has rounded up */
		region_force(a->device, want - a->charged[limit]);
	a->charged[limit] = want;
}

/* Notes what a change under way has reserved. */
static void note_reserved(const struct context_limit_change *c, uint64_t reserved)
{
	pthread_mutex_lock(&context_list.mutex);
	struct context_limits *a = find_record(c->context);
	if (a)
		a->charged[c->limit] += reserved;
	else
		region_release(c->device, reserved); /* its context has gone meanwhile */
	pthread_mutex_unlock(&context_list.mutex);
}

/* Ends a change. The last one under way settles. */
static void end_change(const struct context_limit_change *c)
{
	pthread_mutex_lock(&context_list.mutex);
	struct context_limits *a = find_record(c->context);
	if (a && !--a->calls[c->limit])
		settle_limit(a, c->limit);
	pthread_mutex_unlock(&context_list.mutex);
}

CUresult context_limits_begin(struct context_limit_change *c, int limit, size_t value)
{
	enum gate gate = settings_gate();
	int takes_memory = limit >= 0 && limit < LIMITS;
	*c = (struct context_limit_change){.device = -1, .limit = limit};
	if (gate == GATE_CLOSED && takes_memory)
		return bytes_of_limit(limit, value) > current_bytes(limit)
			       ? CUDA_ERROR_NOT_PERMITTED
			       : CUDA_SUCCESS;
	if (gate != GATE_LIMITED || !takes_memory || !ORIGINAL(cuCtxGetLimit))
		return CUDA_SUCCESS;
	int device = settings_current_device();
	c->context = current_context();
	if (device < 0 || !c->context)
		return CUDA_SUCCESS;
	c->device = device;
	uint64_t more = begin_change(c, bytes_of_limit(limit, value));
	if (more == UINT64_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (more && account_reserve(device, more) != CUDA_SUCCESS) {
		end_change(c);
		return account_refuse(device, more);
	}
	region_add_in_flight(device, 1);
	note_reserved(c, more);
	return CUDA_SUCCESS;
}

CUresult context_limits_end(struct context_limit_change *c, CUresult result)
{
	if (c->device < 0)
		return result;
	end_change(c);
	region_add_in_flight(c->device, -1);
	return result;
}

struct context_limits *context_limits_take(CUcontext context)
{
	pthread_mutex_lock(&context_list.mutex);
	struct context_limits **at = &context_list.first, *a;
	while ((a = *at) && a->context != context)
		at = &a->next;
	if (a)
		*at = a->next;
	pthread_mutex_unlock(&context_list.mutex);
	return a;
}

void context_limits_settle(struct context_limits *a, int gone)
{
	if (a && !gone) {
		pthread_mutex_lock(&context_list.mutex);
		a->next = context_list.first;
		context_list.first = a;
		pthread_mutex_unlock(&context_list.mutex);
		return;
	}
	for (int i = 0; a && i < LIMITS; i++)
		region_release(a->device, a->charged[i]);
	free(a);
}

void context_limits_after_fork(void)
{
	/* another thread of the parent may have held it */
	pthread_mutex_init(&context_list.mutex, NULL);
	context_list.first = NULL;
}
