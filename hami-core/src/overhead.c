/* SPDX-License-Identifier: Apache-2.0 */
#include "overhead.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "log.h"
#include "measure.h"
#include "region.h"
#include "resolve.h"
#include "runtime.h"
#include "table.h"

#define LEAST (1ULL << 20) /* a context is never smaller: anything below is noise */
#define MOST (4ULL << 30)  /* nor larger */

static struct {
	pthread_mutex_t mutex;
	unsigned epoch; /* counts contexts that went: what a thread remembers is old then */
	uint64_t contexts[HAMI_DEVICES], booked[HAMI_DEVICES], code[HAMI_DEVICES];
	int told[HAMI_DEVICES];
} self = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct {
	CUcontext context;
	unsigned epoch;
} seen __attribute__((tls_model("initial-exec")));

static void tell_when_over(int device)
{
	uint64_t limit = runtime_memory_limit(device);
	if (!limit || !runtime_charges_overhead() || self.told[device] || region_used(device) <= limit)
		return;
	self.told[device] = 1;
	log_line(LOG_WARN, "device %d: contexts and code alone exceed its %llu MiB (a context takes %llu): nothing is left to allocate; "
		 "ask for more memory, or have \"context free\" written into the limits",
		 device, (unsigned long long)(limit >> 20), (unsigned long long)(self.booked[device] / self.contexts[device] >> 20));
}

/* Books what the contexts of this process take by today's knowledge (needs the mutex). */
static void settle(int device)
{
	unsigned tries;
	uint64_t want = self.contexts[device] * region_context_bytes(device, &tries);
	if (want == self.booked[device])
		return;
	region_overhead(device, REGION_CONTEXT, (int64_t)(want - self.booked[device]), runtime_charges_overhead());
	int more = want > self.booked[device];
	self.booked[device] = want;
	if (more)
		tell_when_over(device);
}

void overhead_settle(int device)
{
	pthread_mutex_lock(&self.mutex);
	settle(device);
	pthread_mutex_unlock(&self.mutex);
}

void overhead_context_begin(struct context_making *m, CUdevice ordinal)
{
	unsigned tries;
	*m = (struct context_making){.device = -1};
	if (runtime_gate() != GATE_LIMITED || (m->device = runtime_device(ordinal)) < 0)
		return;
	(void)region_context_bytes(m->device, &tries);
	m->serial = region_context_event(m->device);
	if (tries >= REGION_CONTEXT_TRIES)
		return;
	m->listed = measure_own(m->device, &m->own);
	m->measured = measure_free(m->device, &m->card_free);
	m->used = region_used(m->device);
	m->data = region_own_data(m->device);
}

static void learn(int device, uint64_t bytes, enum region_quality quality)
{
	if (bytes >= LEAST && bytes <= MOST)
		region_learn_context(device, bytes, quality);
}

/* What the new context took. An amount of ours on NVML's list, before or after, makes it exact. */
static void measure(const struct context_making *m, int alone)
{
	uint64_t own, left, used;
	if (!m->measured)
		return;
	if (measure_own(m->device, &own)) {
		uint64_t before = (m->listed ? m->own : 0) + region_own_data(m->device) - m->data; /* other threads allocate */
		learn(m->device, own > before ? own - before : 0, REGION_EXACT);
		return;
	}
	used = region_used(m->device);
	if (measure_free(m->device, &left) && left < m->card_free) {
		uint64_t taken = m->card_free - left, others = used > m->used ? used - m->used : 0;
		learn(m->device, taken > others ? taken - others : 0, alone ? REGION_ALONE : REGION_DISTURBED);
	}
}

/* Counts a context once; 1 when it was new (needs the mutex). */
static int count(int device, CUcontext context)
{
	struct table_entry e = {.kind = TABLE_CONTEXT, .device = device, .key = (uintptr_t)context}, old;
	if (table_get(TABLE_CONTEXT, e.key, &old) || table_add(&e))
		return 0;
	self.contexts[device]++;
	return 1;
}

CUresult overhead_context_end(struct context_making *m, CUresult result, CUcontext context)
{
	if (m->device < 0)
		return result;
	int alone = region_context_event(m->device) == m->serial + 1;
	if (result != CUDA_SUCCESS || !context)
		return result;
	measure(m, alone);
	pthread_mutex_lock(&self.mutex);
	count(m->device, context);
	settle(m->device);
	pthread_mutex_unlock(&self.mutex);
	return result;
}

/* A context that was made behind our back: all this process has there beyond its data is taken for it. */
static void measure_found(int device)
{
	unsigned tries;
	uint64_t own, data = region_own_data(device);
	if (!region_context_bytes(device, &tries) && measure_own(device, &own) && own > data)
		learn(device, own - data, REGION_EXACT);
}

void overhead_seen(int device, CUcontext context)
{
	unsigned epoch = __atomic_load_n(&self.epoch, __ATOMIC_ACQUIRE);
	if (!context || (seen.context == context && seen.epoch == epoch))
		return;
	pthread_mutex_lock(&self.mutex);
	if (count(device, context)) {
		measure_found(device);
		settle(device);
	}
	pthread_mutex_unlock(&self.mutex);
	seen.context = context;
	seen.epoch = epoch;
}

/* Takes code off the books (needs the mutex). */
static void drop_code(const struct table_entry *e)
{
	self.code[e->device] -= e->size;
	region_overhead(e->device, REGION_MODULE, -(int64_t)e->size, runtime_charges_overhead());
}

void overhead_context_gone(CUcontext context)
{
	struct table_entry e;
	pthread_mutex_lock(&self.mutex);
	__atomic_add_fetch(&self.epoch, 1, __ATOMIC_RELEASE);
	if (table_take(TABLE_CONTEXT, (uintptr_t)context, &e)) {
		self.contexts[e.device]--;
		settle(e.device);
	}
	for (struct table_entry *list = table_take_linked(TABLE_CODE, (uintptr_t)context), *next; list; list = next) {
		next = list->next;
		drop_code(list);
		free(list);
	}
	pthread_mutex_unlock(&self.mutex);
}

/* Free memory of the card by the driver itself; 0 when it does not say. */
static size_t card_free(void)
{
	size_t left, all;
	fn_cuMemGetInfo_v2 info = ORIGINAL(cuMemGetInfo_v2);
	return info && info(&left, &all) == CUDA_SUCCESS ? left : 0;
}

void overhead_code_begin(struct code_loading *l)
{
	*l = (struct code_loading){.device = -1};
	if (runtime_gate() != GATE_LIMITED)
		return;
	l->device = runtime_current_device();
	if (l->device < 0)
		return;
	overhead_seen(l->device, current_context());
	l->card_free = card_free();
}

/* What this process has beyond its data, contexts and known code, but no more than the card lost (needs the mutex). */
static uint64_t new_code(int device, uint64_t lost)
{
	uint64_t own, known = region_own_data(device) + self.booked[device] + self.code[device];
	if (!measure_own(device, &own) || own <= known)
		return 0;
	return own - known < lost ? own - known : lost;
}

CUresult overhead_code_end(struct code_loading *l, CUresult result, uint64_t handle)
{
	struct table_entry e;
	size_t left = l->device >= 0 && result == CUDA_SUCCESS ? card_free() : l->card_free;
	if (left >= l->card_free) /* the usual case: nothing was taken */
		return result;
	pthread_mutex_lock(&self.mutex);
	uint64_t bytes = new_code(l->device, l->card_free - left);
	if (bytes) {
		if (!table_take(TABLE_CODE, handle, &e))
			e = (struct table_entry){.kind = TABLE_CODE, .device = l->device, .key = handle, .link = (uintptr_t)current_context()};
		e.size += bytes;
		self.code[l->device] += bytes;
		region_overhead(l->device, REGION_MODULE, (int64_t)bytes, runtime_charges_overhead());
		(void)table_add(&e); /* without memory for it, the charge stays until the process ends */
		tell_when_over(l->device);
	}
	pthread_mutex_unlock(&self.mutex);
	return result;
}

void overhead_code_gone(uint64_t handle)
{
	struct table_entry e;
	if (runtime_gate() != GATE_LIMITED || !table_take(TABLE_CODE, handle, &e))
		return;
	pthread_mutex_lock(&self.mutex);
	drop_code(&e);
	pthread_mutex_unlock(&self.mutex);
}

void overhead_after_fork(void)
{
	memset(&self, 0, sizeof self);
	pthread_mutex_init(&self.mutex, NULL); /* another thread of the parent may have held it */
	seen.context = NULL;
	measure_after_fork();
}
