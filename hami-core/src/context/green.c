/* SPDX-License-Identifier: Apache-2.0 */
#include "context/green.h"

#include "context/primary.h"

static unsigned known; /* contexts of green contexts, so that a program without them pays nothing */

CUcontext green_owner(CUcontext context)
{
	struct table_entry e;
	if (!__atomic_load_n(&known, __ATOMIC_ACQUIRE) ||
	    !table_get(TABLE_GREEN_CONTEXT, (uintptr_t)context, &e))
		return context;
	return (CUcontext)(uintptr_t)e.link;
}

void green_learn(CUgreenCtx green, CUdevice device, CUcontext context)
{
	struct table_entry old;
	struct table_entry e = {.kind = TABLE_GREEN,
				.device = device,
				.key = (uintptr_t)green,
				.link = (uintptr_t)context};
	struct table_entry used = {.kind = TABLE_GREEN_CONTEXT,
				   .key = (uintptr_t)context,
				   .link = (uintptr_t)primary_of(device)};
	int is_new = context && used.link && !table_get(TABLE_GREEN_CONTEXT, used.key, &old);
	if (!table_add(&e) && is_new && !table_add(&used))
		__atomic_add_fetch(&known, 1, __ATOMIC_RELEASE);
}

int green_find(CUgreenCtx green, CUdevice *device, CUcontext *context)
{
	struct table_entry e;
	if (!table_get(TABLE_GREEN, (uintptr_t)green, &e))
		return 0;
	*device = e.device;
	*context = (CUcontext)(uintptr_t)e.link;
	return 1;
}

void green_destroy_begin(struct green_destruction *l, CUgreenCtx green)
{
	*l = (struct green_destruction){0};
	l->found = table_take(TABLE_GREEN, (uintptr_t)green, &l->green);
	l->had_context = l->found && l->green.link &&
			 table_take(TABLE_GREEN_CONTEXT, l->green.link, &l->context);
}

void green_destroy_end(const struct green_destruction *l, CUresult result)
{
	if (result == CUDA_SUCCESS) {
		if (l->had_context)
			__atomic_sub_fetch(&known, 1, __ATOMIC_RELEASE);
		return;
	}
	if (l->found)
		(void)table_put_back(&l->green);
	if (l->had_context && table_put_back(&l->context))
		__atomic_sub_fetch(&known, 1, __ATOMIC_RELEASE);
}

void green_after_fork(void)
{
	known = 0;
}
