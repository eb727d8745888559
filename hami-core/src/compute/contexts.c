/* SPDX-License-Identifier: Apache-2.0 */
#include "compute/contexts.h"

#include <stdlib.h>

#include "context/current.h"
#include "settings/settings.h"

#define CONTEXTS_MOST 64 /* contexts of a process that are measured */

static struct {
	pthread_mutex_t mutex; /* for the list; taken before an entry's own */
	/* never freed: another thread may be waiting in it */
	struct compute_context *entry[CONTEXTS_MOST];
	int count;
} self = {.mutex = PTHREAD_MUTEX_INITIALIZER};

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
		self.entry[self.count++] = p;
	}
	return p;
}

struct compute_context *contexts_find(CUcontext context)
{
	if (!context)
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
