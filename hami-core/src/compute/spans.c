/* SPDX-License-Identifier: Apache-2.0 */
#include "compute/spans.h"

#include <string.h>

#include "compute/budget.h"
#include "model/costs.h"
#include "driver/resolve.h"
#include "platform/prim.h"

/* a card changes between processes every 2 ms or so: what takes less is seldom interrupted */
#define DEVICE_SLICE_NS 1300000ULL
#define ANCHOR_BASE_NS (1ULL << 40) /* times before the first anchor must not be negative */

static void return_event(struct compute_context *p, CUevent event)
{
	if (event && p->pooled < SPANS_EVENTS)
		p->pool[p->pooled++] = event;
}

void span_release_event(struct compute_context *p, CUevent event)
{
	pthread_mutex_lock(&p->mutex);
	return_event(p, event);
	pthread_mutex_unlock(&p->mutex);
}

static void uncount_event(struct compute_context *p)
{
	pthread_mutex_lock(&p->mutex);
	p->made -= p->made > 0; /* the context may have gone meanwhile, and its events with it */
	pthread_mutex_unlock(&p->mutex);
}

static void destroy_event(struct compute_context *p, CUevent event)
{
	fn_cuEventDestroy_v2 destroy = ORIGINAL(cuEventDestroy_v2);
	if (!event)
		return;
	if (destroy) /* it may be of a context that is gone */
		destroy(event);
	uncount_event(p);
}

/*
 * One of the pool, else a new one; NULL when there are enough. Events belong to the context that is
 * current when they are made.
 */
static CUevent take_event(struct compute_context *p)
{
	CUevent event = NULL;
	fn_cuEventCreate create = ORIGINAL(cuEventCreate);
	pthread_mutex_lock(&p->mutex);
	if (p->pooled)
		event = p->pool[--p->pooled];
	int room = !event && p->made < SPANS_EVENTS;
	p->made += room;
	pthread_mutex_unlock(&p->mutex);
	if (room && (!create || create(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)) {
		uncount_event(p);
		return NULL;
	}
	return event;
}

CUevent span_record_event(struct compute_context *p, CUstream stream)
{
	fn_cuEventRecord record = ORIGINAL(cuEventRecord);
	CUevent event = record ? take_event(p) : NULL;
	if (!event || record(event, stream) == CUDA_SUCCESS)
		return event;
	destroy_event(p, event);
	return NULL;
}

int span_event_passed(CUevent event)
{
	fn_cuEventQuery query = ORIGINAL(cuEventQuery);
	return !query || query(event) != CUDA_ERROR_NOT_READY; /* broken is as good as ended */
}

uint64_t span_begin_timeline(struct compute_context *p, CUstream stream)
{
	pthread_mutex_lock(&p->mutex);
	int there = p->anchor != NULL;
	uint64_t charged = p->line.charged;
	pthread_mutex_unlock(&p->mutex);
	if (there)
		return charged;
	CUevent event = span_record_event(p, stream);
	pthread_mutex_lock(&p->mutex);
	if (p->anchor) { /* another thread was faster */
		return_event(p, event);
	} else {
		p->anchor = event;
		p->anchor_ns = p->line.latest > ANCHOR_BASE_NS ? p->line.latest : ANCHOR_BASE_NS;
	}
	pthread_mutex_unlock(&p->mutex);
	return charged;
}

/* Whether span `number` is in flight still and has this end (needs the mutex). */
static int is_in_flight(const struct compute_context *p, uint64_t number, CUevent end)
{
	const struct span *s = &p->ring[number % SPANS_MOST];
	return number >= p->first && number < p->next && !s->settled && s->end == end;
}

uint64_t span_find_running(struct compute_context *p, CUstream stream)
{
	CUevent end = NULL;
	uint64_t number = 0;
	pthread_mutex_lock(&p->mutex);
	for (uint64_t n = p->next; n > p->first && !number; n--)
		if (p->ring[(n - 1) % SPANS_MOST].stream == stream)
			number = n - 1;
	if (number)
		end = p->ring[number % SPANS_MOST].settled ? NULL
							   : p->ring[number % SPANS_MOST].end;
	pthread_mutex_unlock(&p->mutex);
	if (!end || span_event_passed(end))
		return 0;
	pthread_mutex_lock(&p->mutex);
	/* else the event may have been another's by then */
	int still = is_in_flight(p, number, end);
	pthread_mutex_unlock(&p->mutex);
	return still ? number : 0;
}

static void discard_all(struct compute_context *p, const struct span *s)
{
	return_event(p, s->start);
	return_event(p, s->mid);
	return_event(p, s->end);
}

static void skip_settled(struct compute_context *p)
{
	while (p->first < p->next && p->ring[p->first % SPANS_MOST].settled)
		p->first++;
}

/* When one old span keeps the whole ring behind it, it gets a new number. */
static void renumber_oldest(struct compute_context *p)
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

void span_add(struct compute_context *p, const struct span *s)
{
	pthread_mutex_lock(&p->mutex);
	if (p->next - p->first == SPANS_MOST)
		renumber_oldest(p);
	if (p->next - p->first == SPANS_MOST) {
		discard_all(p, s);
	} else {
		p->ring[p->next++ % SPANS_MOST] = *s;
		p->queued += s->paid;
	}
	pthread_mutex_unlock(&p->mutex);
}

/* How much of the oldest work in flight is done by now, by estimate (needs the mutex). */
static uint64_t done_of_head(const struct compute_context *p, uint64_t now_ns)
{
	const struct span *head = &p->ring[p->first % SPANS_MOST];
	if (p->first == p->next)
		return 0;
	uint64_t began = p->head_ns > head->opened_ns ? p->head_ns : head->opened_ns,
		 ran = now_ns > began ? now_ns - began : 0;
	return ran < head->paid ? ran : head->paid;
}

struct work_in_flight spans_in_flight(struct compute_context *p, uint64_t now_ns)
{
	struct work_in_flight f = {0};
	pthread_mutex_lock(&p->mutex);
	f.ns = p->queued - done_of_head(p, now_ns);
	f.spans = (unsigned)(p->next - p->first);
	for (uint64_t n = p->first; n < p->next; n++) {
		const struct span *s = &p->ring[n % SPANS_MOST];
		f.unknown += !s->settled && s->predicted == PACE_UNKNOWN;
		f.sliced |= !s->settled && s->predicted > DEVICE_SLICE_NS;
		f.lasting |= !s->settled && s->predicted > 4 * DEVICE_SLICE_NS;
	}
	pthread_mutex_unlock(&p->mutex);
	return f;
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

void compute_context_reset(struct compute_context *p, CUcontext context, int device,
			   unsigned percent, struct unmeasured_work *rest)
{
	pthread_mutex_lock(&p->mutex);
	if (rest)
		*rest = unmeasured_work_of(p);
	__atomic_add_fetch(&p->generation, 1, __ATOMIC_RELEASE);
	p->context = context;
	p->device = device;
	p->percent = percent;
	p->first = p->next = 1;
	p->queued = p->head_ns = p->looked_ns = p->anchor_ns = 0;
	__atomic_store_n(&p->guess_ns, 0, __ATOMIC_RELAXED);
	p->pooled = p->made = 0;
	p->anchor = NULL;
	p->line = (struct pace_line){0};
	p->preempt = (struct preempt){0};
	p->heartbeat = (struct heartbeat){.looking = p->heartbeat.looking};
	memset(p->ended, 0, sizeof p->ended);
	pthread_mutex_unlock(&p->mutex);
}

/*
 * When the events of a span were passed, on the context's time line; 0 where that cannot be told.
 */
struct moments {
	uint64_t start, mid, end;
};

static uint64_t event_time(CUevent anchor, uint64_t anchor_ns, CUevent event)
{
	float ms;
	fn_cuEventElapsedTime elapsed = ORIGINAL(cuEventElapsedTime);
	if (!event || !anchor || !elapsed || elapsed(&ms, anchor, event) != CUDA_SUCCESS)
		return 0;
	return (uint64_t)((int64_t)anchor_ns + (int64_t)((double)ms * 1e6));
}

uint64_t span_event_time(struct compute_context *p, CUevent event)
{
	pthread_mutex_lock(&p->mutex);
	CUevent anchor = p->anchor;
	uint64_t at = p->anchor_ns;
	pthread_mutex_unlock(&p->mutex);
	return event_time(anchor, at, event);
}

static struct moments moments_of(struct compute_context *p, const struct span *s)
{
	struct moments m = {0};
	pthread_mutex_lock(&p->mutex);
	CUevent anchor = p->anchor;
	uint64_t at = p->anchor_ns;
	if (!s->start && s->after && p->ended[s->after % SPANS_MOST].number == s->after)
		m.start = p->ended[s->after % SPANS_MOST].end_ns;
	pthread_mutex_unlock(&p->mutex);
	m.mid = event_time(anchor, at, s->mid);
	m.end = event_time(anchor, at, s->end);
	if (s->start || !s->after)
		m.start = s->start ? event_time(anchor, at, s->start) : m.mid;
	return m;
}

/*
 * The anchor after a span that ended then. A float of milliseconds has 24 bits: the anchor follows
 * the work, so that differences stay small. One that gives no times (of a context that is gone,
 * say) must not stay: the next batch sets another. Returns what to destroy (needs the mutex).
 */
static CUevent move_anchor(struct compute_context *p, CUevent *end, uint64_t end_ns)
{
	CUevent old = p->anchor;
	p->anchor = end_ns ? *end : NULL;
	p->anchor_ns = end_ns;
	if (!end_ns)
		return old;
	*end = old; /* goes back to the pool in its place */
	return NULL;
}

/*
 * What others had while this was on the device: what was seen of it, else by how much its sample is
 * longer than that kernel alone.
 * Pauses of the program are none of it.
 */
static uint64_t lost_time_of(const struct span *s, uint64_t measured, uint64_t charge)
{
	uint64_t cost = cost_of(s->key, s->before);
	if (s->others_ns)
		return s->others_ns;
	if (measured == PACE_UNKNOWN || measured <= charge || !cost || s->sample <= cost)
		return 0;
	double lost = (double)charge * (double)(s->sample - cost) / (double)cost;
	return lost < (double)(measured - charge) ? (uint64_t)lost : measured - charge;
}

/*
 * What the span is charged, and notes it on the time line; in *measured the GPU time between its
 * start and its end that no other span was charged for (needs the mutex).
 */
static uint64_t charge_span(struct compute_context *p, uint64_t number, const struct span *s,
			    const struct moments *m, uint64_t now_ns, uint64_t *measured)
{
	p->ended[number % SPANS_MOST].number = number;
	p->ended[number % SPANS_MOST].end_ns = m->end;
	*measured = PACE_UNKNOWN;
	if (!m->start || !m->end)
		return pace_charge(PACE_UNKNOWN, s->predicted, s->paid);
	uint64_t start = pace_work_start(m->start, m->end, s->loading_ns),
		 rest = pace_uncharged(&p->line, start, m->end, s->charged_then);
	rest -= s->others_ns < rest ? s->others_ns : rest;
	/* no span takes longer than the host has seen it for */
	uint64_t host = now_ns - s->opened_ns;
	if (!s->unmeasured)
		*measured = rest < host ? rest : host;
	uint64_t charge = pace_charge(*measured, s->predicted, s->paid);
	pace_note_charge(&p->line, start, m->end, charge);
	return charge;
}

/*
 * The number of the span in flight with this end, which may have changed; 0: there is none any more
 * (needs the mutex).
 */
static uint64_t find_number(const struct compute_context *p, CUevent end)
{
	for (uint64_t n = p->first; n < p->next; n++)
		if (is_in_flight(p, n, end))
			return n;
	return 0;
}

/*
 * When a span ended that has ended since the last harvest: as late as its cost says, within that
 * time (needs the mutex).
 */
static uint64_t end_on_host(const struct compute_context *p, const struct span *s, uint64_t now_ns)
{
	uint64_t began = p->head_ns > s->opened_ns ? p->head_ns : s->opened_ns,
		 end = began + s->paid;
	end = end > p->looked_ns ? end : p->looked_ns;
	return end < now_ns ? end : now_ns;
}

/* Notes what a span took of which nothing was known (needs the mutex). */
static void learn_guess(struct compute_context *p, uint64_t charge)
{
	uint64_t before = compute_context_measured_guess(p),
		 now = before ? (before * 3 + charge) / 4 : charge + 1;
	__atomic_store_n(&p->guess_ns, now, __ATOMIC_RELAXED);
}

/* Settles a span that has ended. What to give back to the balance. pre: this thread harvests. */
static int64_t settle_span(struct compute_context *p, uint32_t generation, struct span *s,
			   struct vgpu_pace *budget, uint64_t now_ns)
{
	struct moments m = moments_of(p, s);
	uint64_t took = m.mid && m.end > m.mid && s->key ? m.end - m.mid : 0;
	pthread_mutex_lock(&p->mutex);
	took -= took ? preempt_time_between(&p->preempt, m.mid, m.end) : 0;
	s->others_ns = m.start && m.end ? preempt_time_between(&p->preempt, m.start, m.end) : 0;
	pthread_mutex_unlock(&p->mutex);
	s->sample = took ? pace_sample(took, s->late_ns) : 0;
	if (s->sample)
		cost_learn(s->key, s->before, took, s->late_ns);
	pthread_mutex_lock(&p->mutex);
	uint64_t number = p->generation == generation ? find_number(p, s->end) : 0;
	if (!number) { /* the context is gone */
		pthread_mutex_unlock(&p->mutex);
		return 0;
	}
	p->ring[number % SPANS_MOST].settled = 1;
	p->queued -= s->paid;
	p->head_ns = end_on_host(p, s, now_ns);
	uint64_t measured, charge = charge_span(p, number, s, &m, now_ns, &measured);
	if (s->predicted == PACE_UNKNOWN)
		learn_guess(p, charge);
	CUevent broken = move_anchor(p, &s->end, m.end);
	discard_all(p, s);
	pthread_mutex_unlock(&p->mutex);
	destroy_event(p, broken);
	__atomic_add_fetch(&budget->lost_ns, lost_time_of(s, measured, charge), __ATOMIC_RELAXED);
	if (s->free)
		return 0;
	/* processes side by side have each other's time */
	charge = budget_charge(p->device, s->opened_ns, prim_now(), charge);
	__atomic_add_fetch(&budget->spent_ns, charge, __ATOMIC_RELAXED);
	return (int64_t)(s->paid - charge);
}

/* A copy of a span in flight; 0 when it is none. */
static int copy_span(struct compute_context *p, uint64_t number, struct span *out)
{
	pthread_mutex_lock(&p->mutex);
	*out = p->ring[number % SPANS_MOST];
	int there = is_in_flight(p, number, out->end);
	pthread_mutex_unlock(&p->mutex);
	return there;
}

int64_t spans_harvest(struct compute_context *p, struct vgpu_pace *budget, uint64_t now_ns)
{
	int64_t back = 0;
	struct span s;
	pthread_mutex_lock(&p->mutex);
	uint64_t n = p->first, next = p->next;
	uint32_t generation = p->generation;
	int ours = n < next && !p->harvesting;
	p->harvesting |= ours;
	pthread_mutex_unlock(&p->mutex);
	if (!ours)
		return 0;
	for (; n < next; n++)
		if (copy_span(p, n, &s) && span_event_passed(s.end))
			back += settle_span(p, generation, &s, budget, now_ns);
	pthread_mutex_lock(&p->mutex);
	p->harvesting = 0;
	skip_settled(p);
	p->looked_ns = now_ns;
	pthread_mutex_unlock(&p->mutex);
	return back;
}
