/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/context_size.h"

#include "shm/region.h"

#define LEAST (1ULL << 20) /* a context is never smaller: anything below is noise */
#define MOST (2ULL << 30)  /* nor larger */
#define TRIES 4            /* readings, until one is of one moment */

/*
 * The card's free bytes and what the container holds, at one moment: not while a process of ours
 * takes or gives back memory, since the card and the books are then not of one moment. 1 when it
 * was one.
 */
static int read_card_and_region(int device, uint64_t *card_free, uint64_t *used)
{
	int quiet = region_is_quiet(device);
	uint64_t growth = region_generation(device);
	*used = region_used(device);
	return nvml_memory_card_free(device, card_free) && quiet && region_is_quiet(device) &&
	       region_used(device) == *used && region_generation(device) == growth;
}

/* A reading of one moment, if there is one among a few. */
static void read_still(int device, struct nvml_memory_reading *r)
{
	for (int i = 0; i < TRIES; i++) {
		nvml_memory_read(device, r);
		if (r->still || !r->listed)
			return;
	}
}

void context_size_begin(struct context_size_sample *s, int device, int first)
{
	unsigned tries;
	(void)region_context_bytes(device, &tries);
	*s = (struct context_size_sample){.wanted = tries < REGION_CONTEXT_TRIES, .first = first};
	if (!s->wanted && !s->first)
		return;
	/*
	 * Who is on NVML's list is asked at each process's first context: the region keeps a
	 * context's size, and not that.
	 */
	read_still(device, &s->before);
	/* this process has nothing there yet, nor by a copy of this library */
	if (s->before.listed && s->first && !region_has_copy(device)) {
		nvml_memory_distrust_pid(device, s->before.own);
		s->before.listed = 0;
	}
	if (!s->before.listed)
		s->before = (struct nvml_memory_reading){.still = 1}; /* nothing of ours is there */
	s->measured = s->wanted && read_card_and_region(device, &s->card_free, &s->used);
}

static int can_be_a_context(uint64_t bytes)
{
	return bytes >= LEAST && bytes <= MOST;
}

static void learn_size(int device, uint64_t bytes, enum region_quality quality)
{
	if (can_be_a_context(bytes))
		region_learn_context(device, bytes, quality);
}

/*
 * Whether NVML and the books are of one moment. Books that are ahead have memory that is leaving.
 */
static int is_consistent(const struct nvml_memory_reading *r)
{
	return r->still && r->own >= r->data;
}

/* By NVML's amounts for this process, which are exact if no thread has allocated meanwhile. */
static int learn_from_nvml(const struct context_size_sample *s, int device,
			   const struct nvml_memory_reading *after)
{
	if (!is_consistent(after) || !is_consistent(&s->before))
		return 0;
	uint64_t before = s->before.own - s->before.data, now = after->own - after->data;
	uint64_t taken = now > before ? now - before : 0;
	if (s->wanted)
		learn_size(device, taken, REGION_EXACT);
	return s->first && !s->before.listed && can_be_a_context(taken);
}

int context_size_end(const struct context_size_sample *s, int device, int alone)
{
	struct nvml_memory_reading after;
	uint64_t left, used;
	if (!s->wanted && !s->first)
		return 0;
	read_still(device, &after);
	if (after.listed)
		return learn_from_nvml(s, device, &after);
	if (!s->measured || !read_card_and_region(device, &left, &used))
		return 0;
	int64_t taken = (int64_t)(s->card_free - left) - (int64_t)(used - s->used);
	learn_size(device, taken > 0 ? (uint64_t)taken : 0,
		   alone ? REGION_ALONE : REGION_DISTURBED);
	return 0;
}

void context_size_learn_existing(int device)
{
	unsigned tries;
	struct nvml_memory_reading r;
	if (region_context_bytes(device, &tries))
		return;
	read_still(device, &r);
	if (r.listed && r.still && r.own > r.data)
		learn_size(device, r.own - r.data, REGION_EXACT);
}
