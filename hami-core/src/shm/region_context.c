/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region_context.c: what the container has learnt of the size of a context, and what disturbs
 * measuring it.
 */
#include "shm/region.h"

#include "model/limit.h"
#include "shm/slots.h"
#include "shm/word.h"

#define FLIGHT_MOST 65536 /* so many threads are in no call: somebody has written the number */

/*
 * One word holds it all, with a check sum: a size that somebody has written there would be
 * charged to every process.
 */
#define TRIES_BITS 2
#define CHECK_BITS 14
_Static_assert(REGION_CONTEXT_TRIES < 1 << TRIES_BITS, "tries");

static uint64_t seal(uint64_t bytes, unsigned tries)
{
	uint64_t value = bytes << TRIES_BITS | tries;
	uint64_t mixed = (value ^ 0x5bd1) * 0x9e3779b97f4a7c15ULL;
	return value << CHECK_BITS | mixed >> (64 - CHECK_BITS);
}

/* What a word says; 0 and no tries where it was not sealed. */
static uint64_t unseal(uint64_t word, unsigned *tries)
{
	uint64_t value = word >> CHECK_BITS, bytes = value >> TRIES_BITS;
	*tries = (unsigned)(value & ((1 << TRIES_BITS) - 1));
	if (seal(bytes, *tries) == word)
		return bytes;
	return *tries = 0, 0;
}

static uint64_t learnt_bytes(int device, unsigned *tries)
{
	return unseal(word_get(&region_mapping()->ext.context[device]), tries);
}

uint64_t region_context_bytes(int device, unsigned *tries)
{
	if (!region_mapping())
		return *tries = 0, 0;
	uint64_t bytes = learnt_bytes(device, tries);
	/* one count by free memory may hold what somebody took at that moment: two are believed */
	return *tries < 2 ? 0 : bytes;
}

void region_learn_context(int device, uint64_t bytes, enum region_quality quality)
{
	unsigned tries;
	if (bytes >= LIMIT_MOST || region_lock())
		return;
	uint64_t known = learnt_bytes(device, &tries);
	if (quality == REGION_EXACT || !known || bytes < known)
		known = bytes;
	tries = quality == REGION_EXACT ? REGION_CONTEXT_TRIES : tries + (quality == REGION_ALONE);
	if (tries > REGION_CONTEXT_TRIES)
		tries = REGION_CONTEXT_TRIES;
	word_set(&region_mapping()->ext.context[device], seal(known, tries));
	region_unlock();
}

unsigned region_count_context_event(int device)
{
	struct vgpu_region *m = region_mapping();
	return m ? __atomic_add_fetch(&m->ext.context_serial[device], 1, __ATOMIC_ACQ_REL) : 0;
}

void region_add_in_flight(int device, int change)
{
	struct vgpu_region *m = region_mapping();
	int slot = region_own_slot();
	if (m && slot >= 0)
		__atomic_add_fetch(&m->ext.slot[slot].flight[device], change, __ATOMIC_ACQ_REL);
}

int region_is_quiet(int device)
{
	int quiet = 1;
	if (region_lock())
		return 0;
	const struct vgpu_slot *slot = region_mapping()->ext.slot;
	for (int i = 0, high = slots_high_water(); i < high; i++) {
		int32_t calls = (int32_t)word_get32(&slot[i].flight[device]);
		quiet &= !slots_is_live(i) || calls <= 0 || calls > FLIGHT_MOST;
	}
	region_unlock();
	return quiet;
}
