/* SPDX-License-Identifier: Apache-2.0 */
#include "compute/contexts.h"

#include <string.h>

#include "compute/budget.h"
#include "compute/guess.h"
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

/* The first event of a context's time line. */
static void begin_timeline(struct compute_context *p, CUstream stream)
{
	CUevent event = span_record_event(p, stream);
	pthread_mutex_lock(&p->mutex);
	if (p->anchor) { /* another thread was faster */
		return_event(p, event);
	} else {
		p->anchor = event;
		p->anchor_ns = p->line.latest > ANCHOR_BASE_NS ? p->line.latest : ANCHOR_BASE_NS;
	}
	pthread_mutex_unlock(&p->mutex);
}

/* Whether span `number` is in flight still and has this end (needs the mutex). */
static int is_in_flight(const struct compute_context *p, uint64_t number, CUevent end)
{
	const struct span *s = &p->ring[number % SPANS_MOST];
	return number >= p->first && number < p->next && !s->settled && s->end[0] == end;
}

static int has_ended(const struct span *s)
{
	for (int i = 0; i < s->streams; i++)
		if (!span_event_passed(s->end[i]))
			return 0;
	return 1;
}

/* A copy of a span in flight; 0 when it is none. */
static int copy_span(struct compute_context *p, uint64_t number, struct span *out)
{
	pthread_mutex_lock(&p->mutex);
	*out = p->ring[number % SPANS_MOST];
	int there = is_in_flight(p, number, out->end[0]);
	pthread_mutex_unlock(&p->mutex);
	return there;
}

/* Number of the last span that is in flight for certain; 0 when there is none. */
static uint64_t find_running(struct compute_context *p)
{
	struct span s;
	pthread_mutex_lock(&p->mutex);
	uint64_t number = p->next > p->first ? p->next - 1 : 0;
	pthread_mutex_unlock(&p->mutex);
	if (!number || !copy_span(p, number, &s) || has_ended(&s))
		return 0;
	pthread_mutex_lock(&p->mutex);
	/* else the event may have been another's by then */
	int still = is_in_flight(p, number, s.end[0]);
	pthread_mutex_unlock(&p->mutex);
	return still ? number : 0;
}

void span_begin(struct compute_context *p, struct span *s, CUstream stream)
{
	pthread_mutex_lock(&p->mutex);
	int there = p->anchor != NULL;
	s->charged_then = p->line.charged;
	s->seen_then = p->preempt.seen_ns;
	pthread_mutex_unlock(&p->mutex);
	s->stream[s->streams++] = stream;
	if (!there)
		begin_timeline(p, stream);
	s->after = find_running(p);
}

static void discard_all(struct compute_context *p, const struct span *s)
{
	return_event(p, s->start);
	return_event(p, s->mid);
	for (int i = 0; i < s->streams; i++)
		return_event(p, s->end[i]);
}

void span_discard(struct compute_context *p, const struct span *s)
{
	pthread_mutex_lock(&p->mutex);
	discard_all(p, s);
	pthread_mutex_unlock(&p->mutex);
}

int span_end(struct compute_context *p, struct span *s)
{
	int all = 1;
	for (int i = 0; i < s->streams; i++)
		all &= (s->end[i] = span_record_event(p, s->stream[i])) != NULL;
	if (!all)
		span_discard(p, s);
	return all;
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
		if (s->predicted == PACE_UNKNOWN)
			guess_begin(p->device);
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
	f.shared = preempt_is_shared(&p->preempt);
	pthread_mutex_unlock(&p->mutex);
	return f;
}

/* When the events of a span were passed, on the context's time line; 0: that cannot be told. */
struct moments {
	uint64_t start, mid;
	uint64_t last; /* the end of the launch after mid, which is on the first stream */
	uint64_t end;
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
	for (int i = 0; i < s->streams; i++) {
		uint64_t end = event_time(anchor, at, s->end[i]);
		m.last = i ? m.last : end;
		m.end = end > m.end ? end : m.end;
	}
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
 * From when on the device can only have worked for a span: its last launch had been made. Before,
 * it may have stood idle (needs the mutex).
 */
static uint64_t busy_from(const struct compute_context *p, const struct span *s,
			  const struct moments *m)
{
	uint64_t opened = s->launched_ns > s->opened_ns ? s->launched_ns - s->opened_ns : 0,
		 launched = preempt_device_time(&p->preempt, s->launched_ns),
		 idle = !launched ? opened : launched > m->start ? launched - m->start : 0,
		 all = m->end - m->start;
	idle = idle < opened ? idle : opened;
	return m->start + (idle < all ? idle : all);
}

/* How much of a span others may have had without being seen (needs the mutex). */
static uint64_t doubtful_time(const struct compute_context *p, const struct span *s,
			      const struct moments *m)
{
	uint64_t seen = p->preempt.seen_ns - s->seen_then, all = m->end - m->start;
	int unseen = preempt_is_shared(&p->preempt) && all > seen;
	return s->others.doubtful_ns + (unseen ? all - seen : 0);
}

/*
 * What the span is charged, and notes it on the time line. Others in flight are paid by their
 * estimates, and open ones will be (needs the mutex).
 */
static uint64_t charge_span(struct compute_context *p, uint64_t number, const struct span *s,
			    const struct moments *m, uint64_t now_ns)
{
	int known = s->predicted != PACE_UNKNOWN;
	uint64_t estimate = known ? s->predicted : s->paid;
	p->ended[number % SPANS_MOST].number = number;
	p->ended[number % SPANS_MOST].end_ns = m->end;
	if (!m->start || m->end <= m->start)
		return estimate;
	uint64_t measured = pace_uncharged(&p->line, m->start, m->end, s->charged_then);
	measured -= s->others.ns < measured ? s->others.ns : measured;
	/* no span takes longer than the host has seen it for */
	uint64_t host = now_ns - s->opened_ns, busy = busy_from(p, s, m);
	measured = measured < host ? measured : host;
	if (!known && measured > estimate + s->late_ns) /* loading code is no work */
		estimate = measured - s->late_ns;
	uint64_t charge = estimate > measured + s->others.slack_ns ? measured : estimate,
		 theirs = preempt_time_between(&p->preempt, busy, m->end).ns;
	charge += pace_settle(&p->line, busy, m->end, theirs + doubtful_time(p, s, m), charge,
			      p->queued + p->open_ns + s->others.slack_ns);
	pace_note_charge(&p->line, m->start, m->end, charge);
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

/* Settles a span that has ended. What to give back to the balance. pre: this thread harvests. */
static int64_t settle_span(struct compute_context *p, uint32_t generation, struct span *s,
			   struct vgpu_pace *budget)
{
	uint64_t now_ns = prim_now(); /* after it has been seen to have ended */
	struct moments m = moments_of(p, s);
	uint64_t took = m.mid && m.last > m.mid && s->key ? m.last - m.mid : 0;
	pthread_mutex_lock(&p->mutex);
	uint64_t launched = preempt_device_time(&p->preempt, s->launched_ns);
	if (took && s->single && launched) /* before, the device may have stood idle */
		preempt_note_kernel(&p->preempt, launched > m.mid ? launched : m.mid, m.last);
	struct preempt_sum within = preempt_time_between(&p->preempt, m.mid, m.last);
	took = within.doubtful_ns || within.ns > took ? 0 : took - within.ns;
	if (m.start && m.end)
		s->others = preempt_time_between(&p->preempt, m.start, m.end);
	if (s->start && m.start)
		preempt_compare_clocks(&p->preempt, s->opened_ns, m.start);
	pthread_mutex_unlock(&p->mutex);
	if (took)
		cost_learn(s->key, s->kin, s->before, took, s->late_ns);
	pthread_mutex_lock(&p->mutex);
	uint64_t number = p->generation == generation ? find_number(p, s->end[0]) : 0;
	if (!number) { /* the context is gone */
		pthread_mutex_unlock(&p->mutex);
		return 0;
	}
	p->ring[number % SPANS_MOST].settled = 1;
	s->paid = p->ring[number % SPANS_MOST].paid; /* more by now, if it took longer */
	p->queued -= s->paid;
	p->head_ns = end_on_host(p, s, now_ns);
	uint64_t charge = charge_span(p, number, s, &m, now_ns);
	if (s->predicted == PACE_UNKNOWN)
		__atomic_store_n(&p->measured, 1, __ATOMIC_RELAXED);
	CUevent broken = move_anchor(p, &s->end[0], m.last);
	discard_all(p, s);
	pthread_mutex_unlock(&p->mutex);
	destroy_event(p, broken);
	if (s->predicted == PACE_UNKNOWN)
		guess_end(p->device, charge);
	__atomic_add_fetch(&budget->lost_ns, s->others.ns, __ATOMIC_RELAXED);
	if (s->free)
		return 0;
	/* processes side by side have each other's time */
	charge = budget_charge(p->device, s->opened_ns, prim_now(), charge);
	__atomic_add_fetch(&budget->spent_ns, charge, __ATOMIC_RELAXED);
	return (int64_t)(s->paid - charge);
}

/*
 * What the oldest span has taken beyond what is paid is paid while it runs: its process may end.
 * What to take from the balance (needs the mutex).
 */
static uint64_t prepay_head(struct compute_context *p, uint64_t now_ns)
{
	struct span *head = &p->ring[p->first % SPANS_MOST];
	uint64_t began = p->head_ns > head->opened_ns ? p->head_ns : head->opened_ns,
		 due = began + head->paid;
	if (p->first == p->next || head->free || due >= now_ns)
		return 0;
	head->paid += now_ns - due;
	p->queued += now_ns - due;
	return now_ns - due;
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
		if (copy_span(p, n, &s) && has_ended(&s))
			back += settle_span(p, generation, &s, budget);
	pthread_mutex_lock(&p->mutex);
	p->harvesting = 0;
	skip_settled(p);
	back -= (int64_t)prepay_head(p, now_ns);
	p->looked_ns = now_ns;
	pthread_mutex_unlock(&p->mutex);
	return back;
}
