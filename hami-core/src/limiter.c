/* SPDX-License-Identifier: Apache-2.0 */
#include "limiter.h"

#include <pthread.h>
#include <stdlib.h>

#include "borrow.h"
#include "capture.h"
#include "costs.h"
#include "pace.h"
#include "places.h"
#include "prim.h"
#include "resolve.h"
#include "runtime.h"
#include "share.h"
#include "turns.h"

#define BATCH_LAUNCHES 4096     /* most launches between two checkpoints */
#define AHEAD_PATIENCE_NS 500000000ULL /* a kernel may wait for one that we hold back: then let go */
#define LONG_DEBT_NS 10000000ULL
#define COURTESY_NS 300000ULL   /* who comes to a long debt lets those go first who have waited for it */

static const int32_t starting = -3; /* nothing known yet: take the slow way */
static const int32_t never = LIMITER_IDLE;
const int32_t *limiter_word = &starting;

enum mode { MODE_UNKNOWN, MODE_OPEN, MODE_WATCHED, MODE_LIMITED };

static struct {
	pthread_mutex_t mutex; /* for the start */
	int mode;
	int many; /* more than one device: a thread may change devices between launches */
	uint32_t seeds; /* given to threads: their batches differ */
} self = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* What a thread has launched since its last checkpoint. */
struct batch {
	int open;
	struct place *place; /* where the batch is; when it is not open, the last one seen that is not limited, or NULL */
	uint32_t generation; /* of that place */
	CUcontext context;
	int device;
	CUstream other; /* one more stream known to be of that context */
	struct span span;
	uint64_t size, sum; /* nanoseconds: when to close it; launched so far */
	int64_t claimed;    /* taken from the balance when it began */
	int launches;
	uint32_t seed; /* 0: the thread has had no batch yet */
};
static _Thread_local struct batch mine __attribute__((tls_model("initial-exec")));

static int some_share(void)
{
	int limited = 0;
	for (int i = 0; i < HAMI_DEVICES; i++)
		limited |= runtime_cores(i) < 100;
	return limited && runtime_policy() != POLICY_DISABLE;
}

/* Decides once how this process is held. */
static int start(void)
{
	enum gate gate = runtime_gate();
	pthread_mutex_lock(&self.mutex);
	if (!self.mode) {
		const int32_t *word = gate == GATE_LIMITED ? share_word() : NULL;
		int mode = !word ? MODE_OPEN : some_share() ? MODE_LIMITED : MODE_WATCHED;
		self.many = word && share_devices() != 1;
		if (mode != MODE_LIMITED)
			__atomic_store_n(&limiter_word, word ? word : &never, __ATOMIC_RELEASE);
		__atomic_store_n(&self.mode, mode, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&self.mutex);
	return self.mode;
}

/*
 * Waits until there is time to spend, nobody goes first, and little enough is queued, and claims the cost of the launch that waits:
 * else all who wait would launch at once, and those of other processes be on the device for each other's time. 0 when nothing was enforced.
 */
static int wait_for_turn(struct place *p, uint64_t cost)
{
	uint64_t batch = cost > PACE_BATCH_NS ? cost : PACE_BATCH_NS, polite_till = 0;
	uint64_t patience = prim_now() + AHEAD_PATIENCE_NS;
	for (int first = 1;; first = 0) {
		share_heed_monitor();
		if (!share_enforced())
			return 0;
		uint64_t now = prim_now();
		share_give(p->device, spans_harvest(p, share_books(p->device), now));
		unsigned spans;
		uint64_t queued = spans_queued(p, &spans), ahead = pace_ahead(queued, spans);
		unsigned percent = borrow_rate(p->device, p->percent, now);
		int64_t balance = share_refill(p->device, percent, now);
		uint64_t wait = pace_wait(balance, percent), turn = turns_wait(p->device, percent, balance, queued, batch, now);
		if (first && wait > LONG_DEBT_NS)
			polite_till = now + wait + COURTESY_NS;
		if (!wait && now < polite_till) {
			wait = COURTESY_NS;
			polite_till = 0;
		}
		if (!wait)
			wait = turn;
		if (!wait && now < patience)
			wait = ahead;
		if (!wait && share_claim(p->device, (int64_t)cost))
			return 1;
		prim_sleep_until(now + (wait < PACE_SLICE_NS ? wait : PACE_SLICE_NS));
	}
}

/* Whether a context has gone since the thread was there. */
static int stale(const struct batch *b)
{
	return b->generation != place_generation(b->place);
}

/* A batch that cannot be ended where it began: its estimate stands, and it is paid at once. Calls no driver. */
static void abandon(struct batch *b)
{
	if (!stale(b))
		span_discard(b->place, b->span.start);
	if (!b->span.free)
		share_give(b->device, b->claimed - (int64_t)b->sum);
	b->open = 0;
	b->place = NULL;
}

static void thread_ends(void *batch)
{
	struct batch *b = batch;
	if (b->open)
		abandon(b);
	b->seed = 0; /* who launches still, in another such function, is called once more */
}

/* Begins a batch. 0 when this launch is none of ours to limit. */
static int open_batch(struct batch *b, const struct launch *l, CUcontext context)
{
	struct place *p = capture_active(l->stream) ? NULL : place_of(context);
	b->place = NULL;
	if (!p)
		return 0;
	uint32_t generation = place_generation(p), seed = b->seed;
	if (p->percent == 100) {
		*b = (struct batch){.place = p, .generation = generation, .context = context, .seed = seed};
		return 0;
	}
	uint64_t cost = cost_of(l->key);
	int free = !wait_for_turn(p, cost);
	if (!seed) {
		seed = __atomic_add_fetch(&self.seeds, 1, __ATOMIC_RELAXED);
		prim_at_thread_end(thread_ends, b);
	}
	*b = (struct batch){.open = 1, .place = p, .generation = generation, .context = context, .device = p->device, .seed = seed,
			    .claimed = free ? 0 : (int64_t)cost};
	b->size = pace_batch(&b->seed);
	b->span = (struct span){.stream = l->stream, .opened_ns = prim_now(), .free = free};
	b->span.charged_then = span_anchor(p, l->stream);
	b->span.after = span_running(p, l->stream);
	return 1;
}

/* Whether a launch works where the batch is: the place, as far as is asked, and always the device. */
static int continues(struct batch *b, CUstream stream)
{
	if (stale(b))
		return 0;
	if (!self.many || (stream_is_made(stream) && (stream == b->span.stream || stream == b->other)))
		return 1;
	if (stream_context(stream) != b->context)
		return 0;
	b->other = stream_is_made(stream) ? stream : b->other;
	return 1;
}

/* Nothing is limited where the launch works, as far as is known at a glance. */
static int passes(const struct batch *b, CUstream stream)
{
	return b->place && !stale(b) && stream_context(stream) == b->context;
}

/* Counts a launch into the thread's batch; 1 when the batch ends with it. */
static int count(struct batch *b, struct launch *l)
{
	l->cost = cost_of(l->key);
	b->span.unmeasured |= b->span.stream != l->stream;
	b->sum += l->cost ? l->cost : PACE_NEW_NS;
	b->launches++;
	return !l->cost || l->graph || b->sum >= b->size || b->launches >= BATCH_LAUNCHES;
}

static int stream_idle(CUstream stream)
{
	fn_cuStreamQuery query = ORIGINAL(cuStreamQuery);
	return query && query(stream) == CUDA_SUCCESS;
}

/* The slow way of a launch: it begins a batch, or ends one, or both. */
static void checkpoint(struct batch *b, struct launch *l, CUcontext context)
{
	int ends = b->open;
	if (!ends) {
		if (!open_batch(b, l, context))
			return;
		ends = count(b, l);
		if (!ends && !b->span.after) /* where the stream is before the launch */
			b->span.start = span_mark(b->place, l->stream);
	}
	l->checkpoint = ends;
	if (!ends || capture_active(l->stream))
		return;
	l->idle = !l->cost && stream_idle(l->stream);
	l->mid = span_mark(b->place, l->stream);
	l->mid_ns = prim_now();
}

void limiter_before(struct launch *l)
{
	struct batch *b = &mine;
	int mode = __atomic_load_n(&self.mode, __ATOMIC_ACQUIRE);
	if (!mode)
		mode = start();
	if (mode != MODE_LIMITED) {
		if (mode == MODE_WATCHED)
			share_heed_monitor();
		return;
	}
	if (b->open && !continues(b, l->stream))
		abandon(b);
	if (b->open ? !count(b, l) : passes(b, l->stream))
		return;
	if (b->open && !l->cost) { /* measured alone: the batch may hold a pause of the program, and only known costs bound that */
		b->sum -= PACE_NEW_NS;
		abandon(b);
	}
	int before = capture_relax();
	CUcontext context = b->open ? b->context : stream_context(l->stream);
	int entered = context_enter(context);
	checkpoint(b, l, context);
	context_leave(entered);
	capture_restore(before);
}

/* The host's time for a launch that found the device idle, and how much of it was for certain no work of the device's. */
static void note_delay(struct span *s, const struct launch *l)
{
	int working = l->idle && !stream_idle(l->stream); /* else the launch may have waited for its work */
	s->late_ns = l->mid && span_passed(l->mid) ? prim_now() - l->mid_ns : 0;
	s->loading_ns = working ? s->late_ns : 0;
}

/* Ends the thread's batch after its last launch: marks, pays by estimate, leaves the rest to the harvest. */
static void close_batch(struct batch *b, const struct launch *l, CUresult result)
{
	struct span *s = &b->span;
	s->mid = l->mid;
	note_delay(s, l);
	s->key = result == CUDA_SUCCESS ? l->key : 0;
	s->predicted = l->cost ? b->sum : PACE_UNKNOWN;
	s->paid = s->free ? 0 : b->sum;
	s->end = l->mid ? span_mark(b->place, l->stream) : NULL;
	if (s->end) {
		span_add(b->place, s);
	} else {
		span_discard(b->place, s->start);
		span_discard(b->place, s->mid);
	}
	share_give(b->device, b->claimed - (int64_t)s->paid);
	b->open = 0;
	b->place = NULL;
}

CUresult limiter_after(struct launch *l, CUresult result)
{
	struct batch *b = &mine;
	if (!l->checkpoint || !b->open)
		return result;
	if (stale(b)) {
		abandon(b);
		return result;
	}
	int before = capture_relax(), entered = context_enter(b->context);
	close_batch(b, l, result);
	context_leave(entered);
	capture_restore(before);
	return result;
}

void limiter_estimate(struct launch *l)
{
	struct batch *b = &mine;
	if (!b->open)
		return;
	if (!stale(b))
		span_discard(b->place, l->mid);
	l->checkpoint = 0;
	l->mid = NULL;
	abandon(b);
}

static int limited(void)
{
	return __atomic_load_n(&self.mode, __ATOMIC_ACQUIRE) == MODE_LIMITED;
}

CUcontext limiter_waits(CUstream stream)
{
	return limited() ? stream_context(stream) : NULL;
}

void limiter_settle(CUcontext context)
{
	unsigned spans = 0;
	struct place *p = context && limited() ? place_known(context) : NULL;
	if (p)
		spans_queued(p, &spans);
	if (!spans)
		return;
	int before = capture_relax(), entered = context_enter(context);
	share_give(p->device, spans_harvest(p, share_books(p->device), prim_now()));
	context_leave(entered);
	capture_restore(before);
}

void limiter_leave_begin(struct span_rest *rest, CUcontext context)
{
	struct batch *b = &mine;
	if (b->open && b->context == context && !stale(b))
		abandon(b);
	place_forget(context, rest);
}

void limiter_leave_end(const struct span_rest *rest)
{
	uint64_t took = rest->since_ns ? prim_now() - rest->since_ns : 0;
	if (took > rest->paid_ns)
		share_give(rest->device, -(int64_t)(took - rest->paid_ns));
}

void limiter_forget(CUcontext context)
{
	struct span_rest rest;
	limiter_leave_begin(&rest, context);
	limiter_leave_end(&rest);
}

void limiter_after_fork(void)
{
	pthread_mutex_init(&self.mutex, NULL); /* another thread of the parent may have held it */
	self.mode = MODE_UNKNOWN;
	limiter_word = &starting;
	places_after_fork();
	cost_reset();
	mine = (struct batch){0};
}
