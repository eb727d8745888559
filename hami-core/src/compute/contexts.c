/* SPDX-License-Identifier: Apache-2.0 */
#include "compute/contexts.h"

#include <stdlib.h>
#include <string.h>

#include "compute/guess.h"
#include "context/current.h"
#include "settings/settings.h"

#define CONTEXTS_MOST 64 /* contexts of a process that are measured */

static struct {
	pthread_mutex_t mutex; /* for the list; taken before an entry's own */
	/* never freed: another thread may be waiting in it */
	struct compute_context *entry[CONTEXTS_MOST];
	int count;
} self = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void compute_context_count_open(struct compute_context *p, uint32_t generation, uint64_t size)
{
	pthread_mutex_lock(&p->mutex);
	if (p->generation == generation)
		p->open_ns += size;
	pthread_mutex_unlock(&p->mutex);
}

void compute_context_uncount_open(struct compute_context *p, uint32_t generation, uint64_t size)
{
	pthread_mutex_lock(&p->mutex);
	if (p->generation == generation)
		p->open_ns -= size;
	pthread_mutex_unlock(&p->mutex);
}

/*
 * What is still in flight and was never measured: from when on, and what is paid of all that is in
 * flight (needs the mutex).
 */
static struct unmeasured_work unmeasured_work_of(const struct compute_context *p)
{
	struct unmeasured_work rest = {.device = p->device};
	for (uint64_t n = p->first; n < p->next; n++) {
		const struct span *s = &p->ring[n % SPANS_MOST];
		if (s->settled || s->free)
			continue;
		rest.paid_ns += s->paid;
		if (s->predicted == PACE_UNKNOWN &&
		    (!rest.since_ns || s->opened_ns < rest.since_ns))
			rest.since_ns = s->opened_ns;
	}
	return rest;
}

/* What was in flight and not known will not be measured any more (needs the mutex). */
static void forget_guesses(const struct compute_context *p)
{
	for (uint64_t n = p->first; n < p->next; n++) {
		const struct span *s = &p->ring[n % SPANS_MOST];
		if (!s->settled && s->predicted == PACE_UNKNOWN)
			guess_end(p->device, 0);
	}
}

void compute_context_reset(struct compute_context *p, CUcontext context, int device,
			   unsigned percent, struct unmeasured_work *rest)
{
	pthread_mutex_lock(&p->mutex);
	if (rest)
		*rest = unmeasured_work_of(p);
	forget_guesses(p);
	__atomic_add_fetch(&p->generation, 1, __ATOMIC_RELEASE);
	p->context = context;
	p->device = device;
	p->percent = percent;
	p->first = p->next = 1;
	p->queued = p->open_ns = p->head_ns = p->looked_ns = p->anchor_ns = 0;
	__atomic_store_n(&p->measured, 0, __ATOMIC_RELAXED);
	p->pooled = p->made = 0;
	p->anchor = NULL;
	p->line = (struct pace_line){0};
	p->preempt = (struct preempt){0};
	p->heartbeat = (struct heartbeat){.looking = p->heartbeat.looking};
	memset(p->ended, 0, sizeof p->ended);
	pthread_mutex_unlock(&p->mutex);
}

/* Needs the mutex. */
static struct compute_context *find_context(CUcontext context)
{
	for (int i = 0; i < self.count; i++)
		if (self.entry[i]->context == context)
			return self.entry[i];
	return NULL;
}

static struct compute_context *add_context(void)
{
	struct compute_context *p = self.count < CONTEXTS_MOST ? calloc(1, sizeof *p) : NULL;
	if (p) {
		pthread_mutex_init(&p->mutex, NULL);
		self.entry[self.count] = p;
		__atomic_store_n(&self.count, self.count + 1, __ATOMIC_RELAXED);
	}
	return p;
}

int contexts_exist(void)
{
	return __atomic_load_n(&self.count, __ATOMIC_RELAXED) != 0;
}

struct compute_context *contexts_find(CUcontext context)
{
	if (!context || !contexts_exist())
		return NULL;
	pthread_mutex_lock(&self.mutex);
	struct compute_context *p = find_context(context);
	pthread_mutex_unlock(&self.mutex);
	return p;
}

/* Its index in the limits, as settings_current_device tells it. */
static int device_of_context(CUcontext context)
{
	int entered = current_push(context), device = settings_current_device();
	current_pop(entered);
	return device;
}

struct compute_context *contexts_get(CUcontext context)
{
	struct compute_context *p = contexts_find(context);
	int device = p || !context ? 0 : device_of_context(context);
	if (p || !context || device == -2)
		return p;
	pthread_mutex_lock(&self.mutex);
	p = find_context(context); /* another thread may have been faster */
	if (!p && ((p = find_context(NULL)) || (p = add_context())))
		compute_context_reset(p, context, device < 0 ? 0 : device,
				      device < 0 ? 100 : settings_cores(device), NULL);
	pthread_mutex_unlock(&self.mutex);
	return p;
}

struct compute_context *contexts_at(int i)
{
	pthread_mutex_lock(&self.mutex);
	struct compute_context *p = i < self.count ? self.entry[i] : NULL;
	pthread_mutex_unlock(&self.mutex);
	return p;
}

void contexts_remove(CUcontext context, struct unmeasured_work *rest)
{
	*rest = (struct unmeasured_work){0};
	if (!context)
		return;
	pthread_mutex_lock(&self.mutex);
	struct compute_context *p = find_context(context);
	if (p)
		compute_context_reset(p, NULL, p->device, 100, rest);
	pthread_mutex_unlock(&self.mutex);
}

void contexts_after_fork(void)
{
	pthread_mutex_init(&self.mutex, NULL); /* another thread of the parent may have held it */
	self.count = 0;
}
