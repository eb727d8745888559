/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_watch.c: for test programs that judge a memory limit in front of this driver: what a
 * call would take, and whether a refusal was justified at any instant of the call.
 *
 * A call in flight has asked for bytes that it has not taken yet. What it takes is used from then
 * on and no longer asked for, and what it gives back counts as asked for until it ends, because
 * whoever keeps books can credit it only then. So the sum of both rises when a call begins, and
 * when a call takes more than it had said: all rises are noted, and a call that ends learns the
 * highest of them since it began. Nobody pays for this who does not use it.
 */
#include "cuda_fake.h"

static _Thread_local struct {
	int open;
	uint64_t left[FG_MAX_DEVICES];  /* by ordinal: asked for and not taken */
	uint64_t since[FG_MAX_DEVICES]; /* number of the first rise that the call has seen */
} flight;

static _Thread_local struct {
	int on;
	uint64_t bytes;
} dry;

/* From here on this thread takes nothing: a taking fails, and the largest one is noted. */
FG_EXPORT void fakegpu_dry_begin(void);
/* Ends that. Bytes: 0 when nothing was to be taken. */
FG_EXPORT uint64_t fakegpu_dry_end(void);
/* This thread begins a call that may take so many bytes of each of the first `count` devices. */
FG_EXPORT void fakegpu_flight_begin(const uint64_t *bytes, int count);
/*
 * The call has ended. The highest sum of bytes used and asked for meanwhile; UINT64_MAX when too
 * much happened since.
 */
FG_EXPORT void fakegpu_flight_end(uint64_t *most, int count);
/* Bytes that all living processes use of a device now. */
FG_EXPORT uint64_t fakegpu_used(int ordinal);
/* The most that they used since that was last reset. */
FG_EXPORT uint64_t fakegpu_used_high(int ordinal);

void fakegpu_dry_begin(void)
{
	dry.on = 1;
	dry.bytes = 0;
}

uint64_t fakegpu_dry_end(void)
{
	dry.on = 0;
	return dry.bytes;
}

uint64_t fakegpu_used(int ordinal)
{
	fg_lock();
	uint64_t used = fg_used(fake.gpu[ordinal]->minor);
	fg_unlock();
	return used;
}

uint64_t fakegpu_used_high(int ordinal)
{
	const struct fg_device_state *d = &fg_state()->device[fake.gpu[ordinal]->minor];
	return __atomic_load_n(&d->used_high, __ATOMIC_RELAXED);
}

/* Notes what is used and asked for now (under fg_lock). */
static void note(int minor)
{
	const struct fg_state *s = fg_state();
	struct fg_device_state *d = &fg_state()->device[minor];
	uint64_t sum = 0;
	for (uint64_t i = 0; i < s->high && i < FG_MAX_PROCESSES; i++)
		if (s->process[i].in_use)
			sum += s->process[i].used[minor] + s->process[i].asked[minor];
	d->flight_log[d->flights++ % FG_FLIGHT_LOG] = sum;
}

static uint64_t *asked(int ordinal)
{
	return &fg_state()->process[fake.slot].asked[fake.gpu[ordinal]->minor];
}

void fakegpu_flight_begin(const uint64_t *bytes, int count)
{
	fg_lock();
	fg_reap();
	flight.open = 1;
	for (int i = 0; i < count && i < fake.count; i++) {
		flight.left[i] = bytes[i];
		*asked(i) += bytes[i];
		flight.since[i] = fg_state()->device[fake.gpu[i]->minor].flights;
		note(fake.gpu[i]->minor);
	}
	fg_unlock();
}

static uint64_t highest(const struct fg_device_state *d, uint64_t since)
{
	uint64_t most = 0;
	if (d->flights - since > FG_FLIGHT_LOG)
		return UINT64_MAX;
	for (uint64_t i = since; i < d->flights; i++) {
		uint64_t sum = d->flight_log[i % FG_FLIGHT_LOG];
		most = sum > most ? sum : most;
	}
	return most;
}

void fakegpu_flight_end(uint64_t *most, int count)
{
	fg_lock();
	for (int i = 0; i < count && i < fake.count; i++) {
		most[i] = highest(&fg_state()->device[fake.gpu[i]->minor], flight.since[i]);
		*asked(i) -= flight.left[i];
		flight.left[i] = 0;
	}
	flight.open = 0;
	fg_unlock();
}

int fg_watch_take(int ordinal, uint64_t bytes)
{
	(void)ordinal;
	if (dry.on && bytes > dry.bytes)
		dry.bytes = bytes;
	return dry.on;
}

void fg_watch_taken(int ordinal, uint64_t bytes)
{
	if (!flight.open)
		return;
	uint64_t expected = bytes < flight.left[ordinal] ? bytes : flight.left[ordinal];
	flight.left[ordinal] -= expected;
	*asked(ordinal) -= expected;
	if (bytes > expected)
		note(fake.gpu[ordinal]->minor);
}

void fg_watch_given(int ordinal, uint64_t bytes)
{
	if (!flight.open)
		return;
	flight.left[ordinal] += bytes;
	*asked(ordinal) += bytes;
}
