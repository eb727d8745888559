/* SPDX-License-Identifier: Apache-2.0 */
#include "spans.h"

#include <string.h>

#include "resolve.h"

#define ANCHOR_BASE_NS (1ULL << 40) /* times before the first anchor must not be negative */
#define COSTS 4096

/* Direct-mapped: a newcomer takes the place of another, which is then learnt again. */
static struct cost_entry {
	uint64_t key;
	uint64_t estimate; /* 0 while it is new; read without a lock, a stale value does no harm */
	struct pace_cost cost;
} costs[COSTS];

static struct cost_entry *entry_of(uint64_t key)
{
	return &costs[(key * 0x9e3779b97f4a7c15ULL) >> 52]; /* the top 12 bits */
}

uint64_t cost_of(uint64_t key)
{
	const struct cost_entry *e = entry_of(key);
	return __atomic_load_n(&e->key, __ATOMIC_RELAXED) == key ? __atomic_load_n(&e->estimate, __ATOMIC_RELAXED) : 0;
}

void cost_reset(void)
{
	memset(costs, 0, sizeof costs);
}

static void learn(uint64_t key, uint64_t sample)
{
	struct cost_entry *e = entry_of(key);
	if (e->key != key) {
		__atomic_store_n(&e->estimate, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&e->key, key, __ATOMIC_RELAXED);
		e->cost = (struct pace_cost){0};
	}
	pace_cost_sample(&e->cost, sample);
	uint64_t estimate = pace_cost_is_new(&e->cost) ? 0 : pace_cost_estimate(&e->cost);
	__atomic_store_n(&e->estimate, estimate, __ATOMIC_RELAXED);
}

/* Events belong to the context that is current when they are made. */
static CUevent make_event(struct place *p)
{
	CUevent event = NULL;
	CUcontext before;
	fn_cuEventCreate create = ORIGINAL(cuEventCreate);
	fn_cuCtxPushCurrent_v2 push = ORIGINAL(cuCtxPushCurrent_v2);
	fn_cuCtxPopCurrent_v2 pop = ORIGINAL(cuCtxPopCurrent_v2);
	if (!create || !push || !pop || p->made == SPANS_EVENTS || push(p->context) != CUDA_SUCCESS)
		return NULL;
	if (create(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
		event = NULL;
	p->made += event != NULL;
	pop(&before);
	return event;
}

void span_discard(struct place *p, CUevent event)
{
	if (event && p->pooled < SPANS_EVENTS)
		p->pool[p->pooled++] = event;
}

CUevent span_mark(struct place *p, CUstream stream)
{
	fn_cuEventRecord record = ORIGINAL(cuEventRecord);
	CUevent event = p->pooled ? p->pool[--p->pooled] : make_event(p);
	if (!event || !record)
		return NULL;
	if (record(event, stream) == CUDA_SUCCESS)
		return event;
	fn_cuEventDestroy_v2 destroy = ORIGINAL(cuEventDestroy_v2);
	if (destroy) /* it may be of a context that is gone */
		destroy(event);
	p->made--;
	return NULL;
}

int span_passed(CUevent event)
{
	fn_cuEventQuery query = ORIGINAL(cuEventQuery);
	return !query || query(event) != CUDA_ERROR_NOT_READY; /* broken is as good as ended */
}

void span_anchor(struct place *p, CUstream stream)
{
	if (p->anchor)
		return;
	p->anchor = span_mark(p, stream);
	p->anchor_ns = p->line.covered > ANCHOR_BASE_NS ? p->line.covered : ANCHOR_BASE_NS;
}

uint64_t span_running(struct place *p, CUstream stream)
{
	for (uint64_t n = p->next; n > p->first; n--) {
		const struct span *s = &p->ring[(n - 1) % SPANS_MOST];
		if (s->stream == stream)
			return s->settled || span_passed(s->end) ? 0 : n - 1;
	}
	return 0;
}

static void discard_all(struct place *p, const struct span *s)
{
	span_discard(p, s->start);
	span_discard(p, s->mid);
	span_discard(p, s->end);
}

static void skip_settled(struct place *p)
{
	while (p->first < p->next && p->ring[p->first % SPANS_MOST].settled)
		p->first++;
}

/* When one old span keeps all places behind it, it gets a new number. */
static void make_room(struct place *p)
{
	struct span oldest = p->ring[p->first % SPANS_MOST];
	for (uint64_t n = p->first + 1; n < p->next; n++)
		if (p->ring[n % SPANS_MOST].settled) {
			p->first++;
			skip_settled(p);
			p->ring[p->next++ % SPANS_MOST] = oldest;
			return;
		}
}

void span_add(struct place *p, const struct span *s)
{
	if (p->next - p->first == SPANS_MOST)
		make_room(p);
	if (p->next - p->first == SPANS_MOST) {
		discard_all(p, s);
		return;
	}
	struct span *kept = &p->ring[p->next++ % SPANS_MOST];
	*kept = *s;
	kept->busy_then = p->line.busy;
	p->queued += s->paid;
}

/* Where an ended event lies on the context's time line; 0 when it cannot be told. */
static uint64_t time_of(struct place *p, CUevent event)
{
	float ms;
	fn_cuEventElapsedTime elapsed = ORIGINAL(cuEventElapsedTime);
	if (!event || !p->anchor || !elapsed || elapsed(&ms, p->anchor, event) != CUDA_SUCCESS)
		return 0;
	return (uint64_t)((int64_t)p->anchor_ns + (int64_t)((double)ms * 1e6));
}

/* A float of milliseconds has 24 bits: the anchor follows the work, so that differences stay small. */
static void move_anchor(struct place *p, CUevent *event, uint64_t at_ns)
{
	CUevent old = p->anchor;
	if (!at_ns)
		return;
	p->anchor = *event;
	p->anchor_ns = at_ns;
	*event = old; /* goes back to the pool in its place */
}

static uint64_t start_of(struct place *p, const struct span *s)
{
	if (s->start || !s->after)
		return time_of(p, s->start ? s->start : s->mid);
	return p->ended[s->after % SPANS_MOST].number == s->after ? p->ended[s->after % SPANS_MOST].end_ns : 0;
}

/* An anchor that gives no times (of a context that is gone, say) must not stay: the next batch sets another. */
static void drop_anchor(struct place *p)
{
	fn_cuEventDestroy_v2 destroy = ORIGINAL(cuEventDestroy_v2);
	if (p->anchor && destroy)
		destroy(p->anchor);
	p->made -= p->anchor != NULL;
	p->anchor = NULL;
}

/* GPU time between the span's start and its end that no other span has covered. */
static uint64_t measure(struct place *p, uint64_t number, struct span *s, uint64_t now_ns)
{
	uint64_t start = start_of(p, s), mid = time_of(p, s->mid), end = time_of(p, s->end);
	if (!end)
		drop_anchor(p);
	p->ended[number % SPANS_MOST].number = number;
	p->ended[number % SPANS_MOST].end_ns = end;
	s->sample = mid && end > mid && s->key ? pace_sample(end - mid, s->late_ns) : 0;
	if (s->sample)
		learn(s->key, s->sample);
	uint64_t busy = start && end ? pace_take(&p->line, start, end, s->busy_then) : PACE_UNKNOWN;
	move_anchor(p, &s->end, end);
	uint64_t host = now_ns - s->opened_ns; /* no span takes longer than the host has seen it for */
	return s->unmeasured ? PACE_UNKNOWN : busy == PACE_UNKNOWN || busy < host ? busy : host;
}

/* What others had while this was on the device: by how much its sample is longer than that kernel alone. Pauses of the program are none of it. */
static uint64_t lost_of(const struct span *s, uint64_t measured, uint64_t charge)
{
	uint64_t cost = cost_of(s->key);
	if (measured == PACE_UNKNOWN || measured <= charge || !cost || s->sample <= cost)
		return 0;
	double lost = (double)charge * (double)(s->sample - cost) / (double)cost;
	return lost < (double)(measured - charge) ? (uint64_t)lost : measured - charge;
}

int64_t spans_harvest(struct place *p, struct vgpu_pace *books, uint64_t now_ns)
{
	int64_t back = 0;
	for (uint64_t n = p->first; n < p->next; n++) {
		struct span *s = &p->ring[n % SPANS_MOST];
		if (s->settled || !span_passed(s->end))
			continue;
		s->settled = 1;
		p->queued -= s->paid;
		uint64_t measured = measure(p, n, s, now_ns), charge = pace_charge(measured, s->predicted, s->paid);
		__atomic_add_fetch(&books->lost_ns, lost_of(s, measured, charge), __ATOMIC_RELAXED);
		if (!s->free) {
			back += (int64_t)(s->paid - charge);
			__atomic_add_fetch(&books->spent_ns, charge, __ATOMIC_RELAXED);
		}
		discard_all(p, s);
	}
	skip_settled(p);
	return back;
}
