/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/sizing.h"

#include "memory/books.h"
#include "platform/prim.h"
#include "shm/region.h"

#define LEAST (1ULL << 20) /* a context is never smaller: anything below is noise */
#define MOST (2ULL << 30)  /* nor larger */
#define TRIES 4            /* readings, until one is of one moment */

/*
 * The card's free bytes and what the container holds, at one moment: not while a process of ours
 * takes or gives back memory, since the card and the books are then not of one moment. 1 when it
 * was one.
 */
static int weigh(int device, uint64_t *card_free, uint64_t *used)
{
	int quiet = region_quiet(device);
	uint64_t growth = books_growth(device);
	*used = region_used(device);
	return measure_free(device, card_free) && quiet && region_quiet(device) &&
	       region_used(device) == *used && books_growth(device) == growth;
}

/*
 * Whether a copy of this library in another namespace of the linker has something of the device:
 * it is the same process for NVML.
 */
static int another_copy(int device)
{
	struct region_process all[HAMI_PROCESSES];
	unsigned n = region_processes(device, all, HAMI_PROCESSES);
	for (unsigned i = 0; i < n && i < HAMI_PROCESSES; i++)
		if (all[i].pid == prim_pid())
			return 1;
	return 0;
}

/* A reading of one moment, if there is one among a few. */
static void read_still(int device, struct measure_reading *r)
{
	for (int i = 0; i < TRIES; i++) {
		measure_read(device, r);
		if (r->still || !r->listed)
			return;
	}
}

void sizing_begin(struct sizing *s, int device, int first)
{
	unsigned tries;
	(void)region_context_bytes(device, &tries);
	*s = (struct sizing){.wanted = tries < REGION_CONTEXT_TRIES, .first = first};
	if (!s->wanted && !s->first)
		return;
	/*
	 * Who is on NVML's list is asked at each process's first context: the region keeps a
	 * context's size, and not that.
	 */
	read_still(device, &s->before);
	/* this process has nothing there yet */
	if (s->before.listed && s->first && !another_copy(device)) {
		measure_not_ours(device, s->before.own);
		s->before.listed = 0;
	}
	if (!s->before.listed)
		s->before = (struct measure_reading){.still = 1}; /* nothing of ours is there */
	s->measured = s->wanted && weigh(device, &s->card_free, &s->used);
}

static int can_be_a_context(uint64_t bytes)
{
	return bytes >= LEAST && bytes <= MOST;
}

static void learn(int device, uint64_t bytes, enum region_quality quality)
{
	if (can_be_a_context(bytes))
		region_learn_context(device, bytes, quality);
}

/*
 * Whether NVML and the books are of one moment. Books that are ahead have memory that is leaving.
 */
static int agrees(const struct measure_reading *r)
{
	return r->still && r->own >= r->data;
}

/* By NVML's amounts for this process, which are exact if no thread has allocated meanwhile. */
static int end_by_own(const struct sizing *s, int device, const struct measure_reading *after)
{
	if (!agrees(after) || !agrees(&s->before))
		return 0;
	uint64_t before = s->before.own - s->before.data, now = after->own - after->data;
	uint64_t taken = now > before ? now - before : 0;
	if (s->wanted)
		learn(device, taken, REGION_EXACT);
	return s->first && !s->before.listed && can_be_a_context(taken);
}

int sizing_end(const struct sizing *s, int device, int alone)
{
	struct measure_reading after;
	uint64_t left, used;
	if (!s->wanted && !s->first)
		return 0;
	read_still(device, &after);
	if (after.listed)
		return end_by_own(s, device, &after);
	if (!s->measured || !weigh(device, &left, &used))
		return 0;
	int64_t taken = (int64_t)(s->card_free - left) - (int64_t)(used - s->used);
	learn(device, taken > 0 ? (uint64_t)taken : 0, alone ? REGION_ALONE : REGION_DISTURBED);
	return 0;
}

void sizing_found(int device)
{
	unsigned tries;
	struct measure_reading r;
	if (region_context_bytes(device, &tries))
		return;
	read_still(device, &r);
	if (r.listed && r.still && r.own > r.data)
		learn(device, r.own - r.data, REGION_EXACT);
}
