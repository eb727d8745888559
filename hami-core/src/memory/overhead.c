/* SPDX-License-Identifier: Apache-2.0 */
#include "context/current.h"
#include "memory/overhead.h"

#include <pthread.h>
#include <string.h>

#include "memory/account.h"
#include "platform/log.h"
#include "memory/nvml_memory.h"
#include "memory/context_size.h"
#include "platform/prim.h"
#include "shm/region.h"
#include "driver/resolve.h"
#include "settings/settings.h"
#include "model/table.h"

#define OFTEN 100          /* ms between two looks at NVML when somebody asks or is refused */
#define SELDOM 2000        /* ms between two looks while memory is allocated */
#define YOUNG 2000         /* age of a context, ms, until which each look follows soon */
/* What code and what contexts set aside can be believed to take: see is_implausible. */
#define CODE_MOST (8ULL << 30)
/* Ms between two looks while threads kept the last ones from seeing clearly. */
#define SOON 10
#define QUICK 16           /* such looks, then it is left to the usual pace */
/*
 * Loaded images may together take so much beyond their size and be code all the same: it is
 * compiled when it is loaded, and has tables. More than that is arrays.
 */
#define UNEXPLAINED_MOST (32ULL << 20)
#define TRIES 4            /* readings of one look */
#define MISSES 3           /* NVML does not know this process: it will not learn it */

static struct {
	pthread_mutex_t mutex;
	unsigned epoch; /* counts contexts that went: what a thread remembers is old then */
	/* NVML was seen to list this process when it made its first context, and not before */
	int verified;
	/* Of each device; an allocation looks at the first four, which lie together. */
	struct {
		long long looked; /* when `beyond` was measured last, ms */
		int misses;
		int quick;  /* looks that are to follow soon */
		long long made; /* when its newest context was, ms */
		int making; /* contexts being made: there already, perhaps, and not yet booked */
		int told;
		int had;    /* this process has had a context there */
		uint64_t contexts, booked; /* contexts, and what is charged for them */
		uint64_t beyond; /* charged for everything else that is not data */
		uint64_t unexplained; /* the part of it that loads took beyond their images */
	} of[HAMI_DEVICES];
} self = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct {
	CUcontext context;
	unsigned epoch;
	int device;
} seen __attribute__((tls_model("initial-exec")));

static void tell_when_over(int device)
{
	uint64_t limit = settings_memory_limit(device);
	if (!limit || !settings_charges_overhead() || self.of[device].told ||
	    region_used(device) <= limit)
		return;
	self.of[device].told = 1;
	log_line(LOG_WARN,
		 "device %d: contexts and code alone exceed its %llu MiB (a context takes %llu): "
		 "nothing is left to allocate; "
		 "ask for more memory, or have \"context free\" written into the limits",
		 device, (unsigned long long)(limit >> 20),
		 (unsigned long long)(self.of[device].booked / self.of[device].contexts >> 20));
}

/* Books what the contexts of this process take by what is known now (needs the mutex). */
static void settle_contexts(int device)
{
	unsigned tries;
	uint64_t want = self.of[device].contexts * region_context_bytes(device, &tries);
	if (want == self.of[device].booked)
		return;
	region_add_overhead(device, REGION_CONTEXT, (int64_t)(want - self.of[device].booked),
			    settings_charges_overhead());
	int more = want > self.of[device].booked;
	self.of[device].booked = want;
	if (more)
		tell_when_over(device);
}

/*
 * Whether NVML's figure can hardly be this process's. Where NVML knows processes by PIDs of the
 * host, one there may have the PID that this one has in the container; all it has would be taken
 * for our code. The code of all libraries of a framework stays below 3 GiB and the stacks of an
 * H200's threads, with 16 KiB each, take 4. A process that was seen to come onto the list is
 * believed anything.
 */
static int is_implausible(uint64_t beyond)
{
	return beyond > CODE_MOST && !__atomic_load_n(&self.verified, __ATOMIC_RELAXED);
}

/* Charges so much for what is neither data nor a context (needs the mutex). */
static void charge_beyond(int device, uint64_t want)
{
	uint64_t before = self.of[device].beyond;
	if (want == before)
		return;
	self.of[device].beyond = want;
	if (self.of[device].unexplained > want)
		self.of[device].unexplained = want;
	region_add_overhead(device, REGION_MODULE, (int64_t)(want - before),
			    settings_charges_overhead());
	if (want > before)
		tell_when_over(device);
}

static int is_making(int device)
{
	return __atomic_load_n(&self.of[device].making, __ATOMIC_ACQUIRE);
}

/* One reading of NVML beside the books; 1 when it has settled the matter (needs the mutex). */
static int look_at_nvml_once(int device)
{
	struct nvml_memory_reading r;
	int making = is_making(device);
	nvml_memory_read(device, &r);
	making |= is_making(device);
	if (!r.listed) {
		__atomic_add_fetch(&self.of[device].misses, 1, __ATOMIC_RELAXED);
		return 1;
	}
	uint64_t known = r.data + self.of[device].booked;
	uint64_t beyond = r.own > known ? r.own - known : 0;
	if (r.grew || making)
		return 0; /* what was taken meanwhile would look like code */
	int foreign = is_implausible(beyond);
	__atomic_store_n(&self.of[device].misses, foreign ? MISSES : 0, __ATOMIC_RELAXED);
	if (foreign)
		nvml_memory_distrust_pid(device, r.own);
	if (foreign || r.still)
		return charge_beyond(device, foreign ? 0 : beyond), 1;
	if (beyond > self.of[device].beyond)
		charge_beyond(device, beyond); /* there is at least that much */
	return 0;
}

/* Books what NVML says this process has beyond its data and its contexts (needs the mutex). */
static void look_at_nvml(int device)
{
	int tries = TRIES, quick = self.of[device].quick;
	__atomic_store_n(&self.of[device].looked, prim_coarse_ms(), __ATOMIC_RELAXED);
	if (!self.of[device].contexts) {
		__atomic_store_n(&self.of[device].misses, 0, __ATOMIC_RELAXED);
		charge_beyond(device, 0);
		return;
	}
	while (tries && !look_at_nvml_once(device))
		tries--;
	if (tries)
		quick = 0; /* it was seen clearly */
	else
		quick = quick ? quick - 1 : QUICK;
	__atomic_store_n(&self.of[device].quick, quick, __ATOMIC_RELAXED);
}

/*
 * In the first seconds of a context most code is loaded, by launches that nobody sees. A program
 * may have filled its share within a tenth of one.
 */
static int is_young(int device, long long now)
{
	return now - __atomic_load_n(&self.of[device].made, __ATOMIC_RELAXED) < YOUNG;
}

static int is_due(int device, int age)
{
	if (__atomic_load_n(&self.of[device].misses, __ATOMIC_RELAXED) >= MISSES)
		return 0;
	long long now = prim_coarse_ms(),
		  since = now - __atomic_load_n(&self.of[device].looked, __ATOMIC_RELAXED);
	if (since >= age)
		return 1;
	return since >= SOON && (__atomic_load_n(&self.of[device].quick, __ATOMIC_RELAXED) ||
				 is_young(device, now));
}

void overhead_reconcile(int device)
{
	pthread_mutex_lock(&self.mutex);
	settle_contexts(device);
	if (is_due(device, OFTEN))
		look_at_nvml(device);
	pthread_mutex_unlock(&self.mutex);
}

void overhead_add_context_begin(struct context_creation *m, CUdevice ordinal)
{
	*m = (struct context_creation){.device = -1};
	if (settings_gate() != GATE_LIMITED || (m->device = settings_device(ordinal)) < 0)
		return;
	m->serial = region_count_context_event(m->device);
	__atomic_add_fetch(&self.of[m->device].making, 1, __ATOMIC_ACQ_REL);
	int first = !__atomic_load_n(&self.of[m->device].had, __ATOMIC_RELAXED) &&
		    !region_own_data(m->device);
	context_size_begin(&m->size_sample, m->device, first);
}

/* Counts a context once; 1 when it was new (needs the mutex). */
static int count_context(int device, CUcontext context)
{
	struct table_entry e = {.kind = TABLE_CONTEXT,
				.device = device,
				.key = (uintptr_t)context,
				.uses = 1},
			   old;
	if (table_get(TABLE_CONTEXT, e.key, &old) || table_add(&e))
		return 0;
	self.of[device].contexts++;
	__atomic_store_n(&self.of[device].had, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&self.of[device].made, prim_coarse_ms(), __ATOMIC_RELAXED);
	/* nothing to see before some work is done */
	__atomic_store_n(&self.of[device].looked, prim_coarse_ms(), __ATOMIC_RELAXED);
	return 1;
}

static void settle_created(const struct context_creation *m, CUcontext context, int alone)
{
	if (context_size_end(&m->size_sample, m->device, alone))
		__atomic_store_n(&self.verified, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&self.mutex);
	count_context(m->device, context);
	settle_contexts(m->device);
	pthread_mutex_unlock(&self.mutex);
}

CUresult overhead_add_context_end(struct context_creation *m, CUresult result, CUcontext context)
{
	if (m->device < 0)
		return result;
	int alone = region_count_context_event(m->device) == m->serial + 1;
	if (result == CUDA_SUCCESS && context)
		settle_created(m, context, alone);
	region_bump_generation(m->device);
	__atomic_sub_fetch(&self.of[m->device].making, 1, __ATOMIC_ACQ_REL);
	return result;
}

unsigned overhead_epoch(void)
{
	return __atomic_load_n(&self.epoch, __ATOMIC_SEQ_CST);
}

/* Whether the calling thread has met this context before, and no context has gone since. */
static int is_known(CUcontext context)
{
	return context && seen.context == context &&
	       seen.epoch == __atomic_load_n(&self.epoch, __ATOMIC_ACQUIRE);
}

int overhead_note_current(CUcontext *owner)
{
	CUcontext now = NULL;
	fn_cuCtxGetCurrent get = ORIGINAL(cuCtxGetCurrent);
	/* a green one never is: its owner is */
	if (!get || get(&now) != CUDA_SUCCESS || !is_known(now)) {
		int device = settings_current_device();
		*owner = device >= 0 ? current_context() : NULL;
		if (device >= 0)
			overhead_note_context(device, *owner);
		return device;
	}
	*owner = now;
	if (is_due(seen.device, SELDOM))
		overhead_reconcile(seen.device);
	return seen.device;
}

void overhead_note_context(int device, CUcontext context)
{
	unsigned epoch = __atomic_load_n(&self.epoch, __ATOMIC_ACQUIRE);
	if (!context)
		return;
	if (is_known(context)) {
		if (is_due(device, SELDOM))
			overhead_reconcile(device);
		return;
	}
	pthread_mutex_lock(&self.mutex);
	if (count_context(device, context)) {
		context_size_learn_existing(device);
		settle_contexts(device);
	}
	pthread_mutex_unlock(&self.mutex);
	seen.context = context;
	seen.epoch = epoch;
	seen.device = device;
}

void overhead_remove_context_begin(struct context_removal *l, CUcontext context)
{
	__atomic_add_fetch(&self.epoch, 1, __ATOMIC_SEQ_CST);
	l->found = table_take(TABLE_CONTEXT, (uintptr_t)context, &l->entry);
}

void overhead_remove_context_end(const struct context_removal *l, int gone)
{
	struct table_entry again;
	int device = l->entry.device;
	pthread_mutex_lock(&self.mutex);
	__atomic_add_fetch(&self.epoch, 1, __ATOMIC_RELEASE);
	if (l->found && gone) {
		self.of[device].contexts--;
		settle_contexts(device);
		if (self.of[device].beyond)
			look_at_nvml(device);
	} else if (l->found && table_replace(&l->entry, &again) > 0) {
		/* Another thread has met it meanwhile and counted it again */
		self.of[device].contexts--;
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

void overhead_code_begin(struct code_load *l)
{
	*l = (struct code_load){.device = -1};
	if (settings_gate() != GATE_LIMITED)
		return;
	CUcontext context;
	l->device = overhead_note_current(&context);
	if (l->device < 0)
		return;
	l->card_free = card_free();
	pthread_mutex_lock(&self.mutex);
	l->beyond = self.of[l->device].beyond;
	pthread_mutex_unlock(&self.mutex);
}

CUresult overhead_code_end(struct code_load *l, CUresult result)
{
	if (l->device < 0 || result != CUDA_SUCCESS || card_free() >= l->card_free)
		return result; /* the usual case: nothing was taken */
	pthread_mutex_lock(&self.mutex);
	if (self.of[l->device].misses < MISSES)
		look_at_nvml(l->device);
	pthread_mutex_unlock(&self.mutex);
	return result;
}

uint64_t overhead_code_excess(struct code_load *l, uint64_t image_bytes)
{
	if (l->device < 0)
		return 0;
	uint64_t limit = settings_charges_overhead() ? settings_memory_limit(l->device) : 0;
	pthread_mutex_lock(&self.mutex);
	uint64_t known = l->beyond + image_bytes, now = self.of[l->device].beyond;
	uint64_t excess = now > known ? now - known : 0;
	self.of[l->device].unexplained += excess;
	int much = self.of[l->device].unexplained > UNEXPLAINED_MOST;
	pthread_mutex_unlock(&self.mutex);
	return much && limit && region_used(l->device) > limit ? excess : 0;
}

void overhead_code_unloaded(void)
{
	if (settings_gate() != GATE_LIMITED)
		return;
	pthread_mutex_lock(&self.mutex);
	for (int i = 0; i < HAMI_DEVICES; i++)
		if (self.of[i].beyond)
			look_at_nvml(i);
	pthread_mutex_unlock(&self.mutex);
}

void overhead_after_fork(void)
{
	memset(&self, 0, sizeof self);
	pthread_mutex_init(&self.mutex, NULL); /* another thread of the parent may have held it */
	seen.context = NULL;
}
