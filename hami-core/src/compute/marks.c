/* SPDX-License-Identifier: Apache-2.0 */
#include "compute/marks.h"

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
static int work_ended(const struct place *p, uint64_t at)
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
static int take_mark(struct place *p, struct marks *m, uint32_t generation)
{
	if (!m->mark)
		return 1;
	if (!span_passed(m->mark))
		return 0;
	uint64_t at = span_time(p, m->mark);
	pthread_mutex_lock(&p->mutex);
	if (at && p->generation == generation)
		preempt_note(&p->preempt, m->marked_ns, m->sent_ns, at, work_ended(p, at));
	pthread_mutex_unlock(&p->mutex);
	span_discard(p, m->mark);
	m->mark = NULL;
	return 1;
}

/* Hands the marks to a thread that looks alone. 0: another one does, or there is nothing to see. */
static int begin(struct place *p, struct marks *m, uint32_t *generation)
{
	pthread_mutex_lock(&p->mutex);
	int ours = !p->marks.looking && !p->marks.impossible && p->anchor;
	p->marks.looking |= ours;
	*m = p->marks;
	*generation = p->generation;
	pthread_mutex_unlock(&p->mutex);
	return ours;
}

/* Takes them back, unless their context went meanwhile, and all that is in them with it. */
static void end(struct place *p, const struct marks *m, uint32_t generation)
{
	pthread_mutex_lock(&p->mutex);
	if (p->generation == generation)
		p->marks = *m;
	p->marks.looking = 0;
	pthread_mutex_unlock(&p->mutex);
}

void marks_look(struct place *p)
{
	struct marks m;
	uint32_t generation;
	if (!begin(p, &m, &generation))
		return;
	if (!m.stream)
		m.stream = make_stream();
	if (!m.stream) {
		m.impossible = 1;
	} else if (take_mark(p, &m, generation)) {
		m.marked_ns = prim_now();
		m.mark = span_mark(p, m.stream);
		m.sent_ns = prim_now();
		take_mark(p, &m, generation);
	}
	end(p, &m, generation);
}

uint64_t marks_others(struct place *p, uint64_t now_ns)
{
	pthread_mutex_lock(&p->mutex);
	const struct marks *m = &p->marks;
	uint64_t others = p->preempt.pieces + (m->mark && m->sent_ns + WAITS_NS < now_ns);
	pthread_mutex_unlock(&p->mutex);
	return others;
}
