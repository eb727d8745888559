/* SPDX-License-Identifier: Apache-2.0 */
#include "compute/heartbeat.h"

#include "compute/budget.h"
#include "compute/contexts.h"
#include "driver/resolve.h"
#include "platform/prim.h"

#define STREAM_NON_BLOCKING 1
#define WAITS_NS 200000ULL /* so long no mark takes that waits for nobody */

static CUstream make_stream(void)
{
	CUstream stream = NULL;
	fn_cuStreamCreate create = ORIGINAL(cuStreamCreate);
	return create && create(&stream, STREAM_NON_BLOCKING) == CUDA_SUCCESS ? stream : NULL;
}

/* Whether some work of ours ended at that moment (needs the mutex). */
static int work_ended(const struct compute_context *p, uint64_t at)
{
	for (int i = 0; i < SPANS_MOST; i++)
		if (p->ended[i].end_ns + PREEMPT_SAME_NS > at &&
		    p->ended[i].end_ns < at + PREEMPT_SAME_NS)
			return 1;
	return 0;
}

/*
 * A mark that was passed is noted, and its event given back. Whether there is none under way any
 * more.
 */
static int collect_mark(struct compute_context *p, struct heartbeat *m, uint32_t generation)
{
	if (!m->mark)
		return 1;
	if (!span_event_passed(m->mark))
		return 0;
	uint64_t at = span_event_time(p, m->mark);
	pthread_mutex_lock(&p->mutex);
	if (at && p->generation == generation)
		preempt_note(&p->preempt, m->marked_ns, m->sent_ns, at, work_ended(p, at));
	pthread_mutex_unlock(&p->mutex);
	span_release_event(p, m->mark);
	m->mark = NULL;
	return 1;
}

/*
 * Hands the heartbeat to a thread that looks alone. 0: another one does, or there is nothing to
 * see.
 */
static int claim_heartbeat(struct compute_context *p, struct heartbeat *m, uint32_t *generation)
{
	pthread_mutex_lock(&p->mutex);
	int ours = !p->heartbeat.looking && !p->heartbeat.impossible && p->anchor;
	p->heartbeat.looking |= ours;
	*m = p->heartbeat;
	*generation = p->generation;
	pthread_mutex_unlock(&p->mutex);
	return ours;
}

/* Takes it back, unless its context went meanwhile, and all that is in it with it. */
static void return_heartbeat(struct compute_context *p, const struct heartbeat *m,
			     uint32_t generation)
{
	pthread_mutex_lock(&p->mutex);
	if (p->generation == generation)
		p->heartbeat = *m;
	p->heartbeat.looking = 0;
	pthread_mutex_unlock(&p->mutex);
}

void heartbeat_poll(struct compute_context *p)
{
	struct heartbeat m;
	uint32_t generation;
	if (!claim_heartbeat(p, &m, &generation))
		return;
	if (!m.stream)
		m.stream = make_stream();
	if (!m.stream) {
		m.impossible = 1;
	} else if (collect_mark(p, &m, generation)) {
		m.marked_ns = prim_now();
		m.mark = span_record_event(p, m.stream);
		m.sent_ns = prim_now();
		collect_mark(p, &m, generation);
	}
	return_heartbeat(p, &m, generation);
}

uint64_t heartbeat_count_preemptions(struct compute_context *p, uint64_t now_ns)
{
	pthread_mutex_lock(&p->mutex);
	const struct heartbeat *m = &p->heartbeat;
	uint64_t others = p->preempt.shared_ns + (m->mark && m->sent_ns + WAITS_NS < now_ns);
	pthread_mutex_unlock(&p->mutex);
	return others;
}

struct work_in_flight heartbeat_look(struct compute_context *p, uint64_t now, int for_others)
{
	struct work_in_flight f = spans_in_flight(p, now);
	if (f.spans && (f.shared || for_others))
		heartbeat_poll(p);
	if (f.spans)
		budget_add(p->device, spans_harvest(p, budget_of(p->device), now));
	return spans_in_flight(p, now);
}
