/* SPDX-License-Identifier: Apache-2.0 */
#include "overhead.h"

#include <pthread.h>
#include <string.h>

#include "account.h"
#include "log.h"
#include "measure.h"
#include "prim.h"
#include "region.h"
#include "resolve.h"
#include "runtime.h"
#include "table.h"

#define LEAST (1ULL << 20) /* a context is never smaller: anything below is noise */
#define MOST (2ULL << 30)  /* nor larger */
#define OFTEN 100          /* ms between two looks at NVML when somebody asks or is refused */
#define SELDOM 2000        /* ms between two looks while memory is allocated */
#define CODE_MOST (8ULL << 30) /* what code and what contexts set aside can be believed to take: see unlikely */
#define MISSES 3           /* NVML does not know this process: it will not learn it */

static struct {
	pthread_mutex_t mutex;
	unsigned epoch; /* counts contexts that went: what a thread remembers is old then */
	uint64_t contexts[HAMI_DEVICES], booked[HAMI_DEVICES]; /* contexts, and what is charged for them */
	uint64_t beyond[HAMI_DEVICES];                         /* charged for everything else that is not data */
	long long looked[HAMI_DEVICES];                        /* when that was measured last, ms */
	int misses[HAMI_DEVICES], told[HAMI_DEVICES];
	int had[HAMI_DEVICES]; /* this process has had a context there */
	int verified; /* NVML was seen to list this process when it made its first context, and not before */
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

/*
 * Whether NVML's figure can hardly be this process's. Where NVML knows processes by PIDs of the host, one there may have the PID that this
 * one has in the container; all it has would be taken for our code. The code of all libraries of a framework stays below 3 GiB and the stacks
 * of an H200's threads, with 16 KiB each, take 4. A process that was seen to come onto the list is believed anything.
 */
static int unlikely(uint64_t beyond)
{
	return beyond > CODE_MOST && !__atomic_load_n(&self.verified, __ATOMIC_RELAXED);
}

/* Books what NVML says this process has beyond its data and its contexts (needs the mutex). */
static void look(int device)
{
	uint64_t own = 0, known = region_own_data(device) + self.booked[device];
	__atomic_store_n(&self.looked[device], prim_coarse_ms(), __ATOMIC_RELAXED);
	if (self.contexts[device] && !measure_own(device, &own)) {
		__atomic_add_fetch(&self.misses[device], 1, __ATOMIC_RELAXED);
		return;
	}
	uint64_t want = own > known ? own - known : 0, before = self.beyond[device];
	int foreign = unlikely(want);
	__atomic_store_n(&self.misses[device], foreign ? MISSES : 0, __ATOMIC_RELAXED);
	if (foreign) {
		measure_not_ours(device, own);
		want = 0;
	}
	if (want == before)
		return;
	self.beyond[device] = want;
	region_overhead(device, REGION_MODULE, (int64_t)(want - before), runtime_charges_overhead());
	if (want > before)
		tell_when_over(device);
}

static int is_due(int device, int age)
{
	return __atomic_load_n(&self.misses[device], __ATOMIC_RELAXED) < MISSES && prim_coarse_ms() - __atomic_load_n(&self.looked[device], __ATOMIC_RELAXED) >= age;
}

void overhead_settle(int device)
{
	pthread_mutex_lock(&self.mutex);
	settle(device);
	if (is_due(device, OFTEN))
		look(device);
	pthread_mutex_unlock(&self.mutex);
}

/*
 * The card's free bytes and what the container holds, at one moment: not while a process of ours takes or
 * gives back memory, since the card and the books are then not of one moment. 1 when it was one.
 */
static int weigh(int device, uint64_t *card_free, uint64_t *used)
{
	int quiet = region_quiet(device);
	*used = region_used(device);
	return measure_free(device, card_free) && quiet && region_quiet(device) && region_used(device) == *used;
}

/* Whether a copy of this library in another namespace of the linker has something of the device: it is the same process for NVML. */
static int another_copy(int device)
{
	struct region_process all[HAMI_PROCESSES];
	unsigned n = region_processes(device, all, HAMI_PROCESSES);
	for (unsigned i = 0; i < n && i < HAMI_PROCESSES; i++)
		if (all[i].pid == prim_pid())
			return 1;
	return 0;
}

void overhead_context_begin(struct context_making *m, CUdevice ordinal)
{
	unsigned tries;
	*m = (struct context_making){.device = -1};
	if (runtime_gate() != GATE_LIMITED || (m->device = runtime_device(ordinal)) < 0)
		return;
	(void)region_context_bytes(m->device, &tries);
	m->serial = region_context_event(m->device);
	m->wanted = tries < REGION_CONTEXT_TRIES;
	m->first = !__atomic_load_n(&self.had[m->device], __ATOMIC_RELAXED) && !region_own_data(m->device);
	if (!m->wanted && !m->first)
		return;
	/* Who is on NVML's list is asked at each process's first context: the region keeps a context's size, and not that. */
	m->listed = measure_own(m->device, &m->own);
	if (m->listed && m->first && !another_copy(m->device)) { /* this process has nothing there yet */
		measure_not_ours(m->device, m->own);
		m->listed = 0;
	}
	m->measured = m->wanted && weigh(m->device, &m->card_free, &m->used);
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
	if (!m->wanted && !m->first)
		return;
	if (measure_own(m->device, &own)) {
		uint64_t before = (m->listed ? m->own : 0) + region_own_data(m->device) - m->data; /* other threads allocate */
		uint64_t taken = own > before ? own - before : 0;
		if (m->first && !m->listed && taken >= LEAST && taken <= MOST)
			__atomic_store_n(&self.verified, 1, __ATOMIC_RELAXED);
		if (m->wanted)
			learn(m->device, taken, REGION_EXACT);
		return;
	}
	if (!m->measured || !weigh(m->device, &left, &used))
		return;
	int64_t taken = (int64_t)(m->card_free - left) - (int64_t)(used - m->used);
	learn(m->device, taken > 0 ? (uint64_t)taken : 0, alone ? REGION_ALONE : REGION_DISTURBED);
}

/* Counts a context once; 1 when it was new (needs the mutex). */
static int count(int device, CUcontext context)
{
	struct table_entry e = {.kind = TABLE_CONTEXT, .device = device, .key = (uintptr_t)context, .uses = 1}, old;
	if (table_get(TABLE_CONTEXT, e.key, &old) || table_add(&e))
		return 0;
	self.contexts[device]++;
	__atomic_store_n(&self.had[device], 1, __ATOMIC_RELAXED);
	__atomic_store_n(&self.looked[device], prim_coarse_ms(), __ATOMIC_RELAXED); /* nothing to see before some work is done */
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
	if (!context)
		return;
	if (seen.context == context && seen.epoch == epoch) {
		if (is_due(device, SELDOM))
			overhead_settle(device);
		return;
	}
	pthread_mutex_lock(&self.mutex);
	if (count(device, context)) {
		measure_found(device);
		settle(device);
	}
	pthread_mutex_unlock(&self.mutex);
	seen.context = context;
	seen.epoch = epoch;
}

void overhead_context_gone(CUcontext context)
{
	struct table_entry e;
	pthread_mutex_lock(&self.mutex);
	__atomic_add_fetch(&self.epoch, 1, __ATOMIC_RELEASE);
	if (table_take(TABLE_CONTEXT, (uintptr_t)context, &e)) {
		self.contexts[e.device]--;
		settle(e.device);
		if (self.beyond[e.device])
			look(e.device);
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

CUresult overhead_code_end(struct code_loading *l, CUresult result)
{
	if (l->device < 0 || result != CUDA_SUCCESS || card_free() >= l->card_free)
		return result; /* the usual case: nothing was taken */
	pthread_mutex_lock(&self.mutex);
	if (self.misses[l->device] < MISSES)
		look(l->device);
	pthread_mutex_unlock(&self.mutex);
	return result;
}

void overhead_code_gone(void)
{
	if (runtime_gate() != GATE_LIMITED)
		return;
	pthread_mutex_lock(&self.mutex);
	for (int i = 0; i < HAMI_DEVICES; i++)
		if (self.beyond[i])
			look(i);
	pthread_mutex_unlock(&self.mutex);
}

void overhead_after_fork(void)
{
	memset(&self, 0, sizeof self);
	pthread_mutex_init(&self.mutex, NULL); /* another thread of the parent may have held it */
	seen.context = NULL;
	measure_after_fork();
}
