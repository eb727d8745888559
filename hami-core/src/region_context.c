/* SPDX-License-Identifier: Apache-2.0 */
/* region_context.c: what the container has learnt of the size of a context, and what disturbs measuring it. */
#include "region.h"

uint64_t region_context_bytes(int device, unsigned *tries)
{
	if (!region_memory())
		return *tries = 0, 0;
	*tries = __atomic_load_n(&region_memory()->ext.context_tries[device], __ATOMIC_ACQUIRE);
	/* one count by free memory may hold what somebody took at that moment: two are believed */
	return *tries < 2 ? 0 : __atomic_load_n(&region_memory()->ext.context_bytes[device], __ATOMIC_RELAXED);
}

void region_learn_context(int device, uint64_t bytes, enum region_quality quality)
{
	if (region_lock())
		return;
	struct vgpu_extension *x = &region_memory()->ext;
	uint32_t tries = x->context_tries[device];
	uint64_t known = x->context_bytes[device];
	if (quality == REGION_EXACT || !known || bytes < known)
		__atomic_store_n(&x->context_bytes[device], bytes, __ATOMIC_RELAXED);
	tries = quality == REGION_EXACT ? REGION_CONTEXT_TRIES : tries + (quality == REGION_ALONE);
	__atomic_store_n(&x->context_tries[device], tries, __ATOMIC_RELEASE);
	region_unlock();
}

unsigned region_context_event(int device)
{
	return region_memory() ? __atomic_add_fetch(&region_memory()->ext.context_serial[device], 1, __ATOMIC_ACQ_REL) : 0;
}

void region_flight(int device, int change)
{
	struct vgpu_region *m = region_memory();
	int slot = region_slot();
	if (m && slot >= 0)
		__atomic_add_fetch(&m->ext.slot[slot].flight[device], change, __ATOMIC_ACQ_REL);
}

int region_quiet(int device)
{
	int quiet = 1;
	if (region_lock())
		return 0;
	const struct vgpu_region *m = region_memory();
	for (int i = 0; i < m->hami.proc_num && i < HAMI_PROCESSES; i++)
		quiet &= m->ext.slot[i].state != SLOT_LIVE || __atomic_load_n(&m->ext.slot[i].flight[device], __ATOMIC_ACQUIRE) <= 0;
	region_unlock();
	return quiet;
}
