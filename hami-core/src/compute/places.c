/* SPDX-License-Identifier: Apache-2.0 */
#include "compute/places.h"

#include <stdlib.h>

#include "context/current.h"
#include "settings/runtime.h"

#define PLACES 64 /* contexts of a process that are measured */

static struct {
	pthread_mutex_t mutex; /* for who is where; taken before a place's own */
	struct place *place[PLACES]; /* never freed: another thread may be waiting in it */
	int count;
} self = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Needs the mutex. */
static struct place *find(CUcontext context)
{
	for (int i = 0; i < self.count; i++)
		if (self.place[i]->context == context)
			return self.place[i];
	return NULL;
}

static struct place *make(void)
{
	struct place *p = self.count < PLACES ? calloc(1, sizeof *p) : NULL;
	if (p) {
		pthread_mutex_init(&p->mutex, NULL);
		self.place[self.count++] = p;
	}
	return p;
}

struct place *place_known(CUcontext context)
{
	if (!context)
		return NULL;
	pthread_mutex_lock(&self.mutex);
	struct place *p = find(context);
	pthread_mutex_unlock(&self.mutex);
	return p;
}

/* Its index in the limits, as runtime_current_device tells it. */
static int device_of(CUcontext context)
{
	int entered = context_enter(context), device = runtime_current_device();
	context_leave(entered);
	return device;
}

struct place *place_of(CUcontext context)
{
	struct place *p = place_known(context);
	int device = p || !context ? 0 : device_of(context);
	if (p || !context || device == -2)
		return p;
	pthread_mutex_lock(&self.mutex);
	p = find(context); /* another thread may have been faster */
	if (!p && ((p = find(NULL)) || (p = make())))
		place_reset(p, context, device < 0 ? 0 : device,
			    device < 0 ? 100 : runtime_cores(device), NULL);
	pthread_mutex_unlock(&self.mutex);
	return p;
}

void place_forget(CUcontext context, struct span_rest *rest)
{
	*rest = (struct span_rest){0};
	if (!context)
		return;
	pthread_mutex_lock(&self.mutex);
	struct place *p = find(context);
	if (p)
		place_reset(p, NULL, p->device, 100, rest);
	pthread_mutex_unlock(&self.mutex);
}

void places_after_fork(void)
{
	pthread_mutex_init(&self.mutex, NULL); /* another thread of the parent may have held it */
	self.count = 0;
}
