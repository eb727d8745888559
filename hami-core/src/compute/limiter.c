/* SPDX-License-Identifier: Apache-2.0 */
#include "context/current.h"
#include "compute/limiter.h"

#include <pthread.h>
#include <stdlib.h>

#include "compute/batch.h"
#include "compute/borrow.h"
#include "compute/lease.h"
#include "compute/marks.h"
#include "context/capture.h"
#include "model/pace.h"
#include "compute/places.h"
#include "platform/prim.h"
#include "driver/resolve.h"
#include "settings/runtime.h"
#include "compute/share.h"
#include "compute/turns.h"

#define LOOK_NS 200000ULL       /* between two looks whether others have the device */
#define WATCH_LEAST_NS 20000ULL /* between two looks while a program waits for new work */
#define WATCH_MOST_NS 1000000000ULL /* then its wait is the driver's alone */
#define RETRY_NS 10000000ULL    /* between two looks whether the limits can be read by now */
/* a kernel may wait for one that we hold back: then let go */
#define AHEAD_PATIENCE_NS 500000000ULL

static const int32_t starting = -3; /* nothing known yet: take the slow way */
static const int32_t never = LIMITER_IDLE;
const int32_t *limiter_word = &starting;

enum mode { MODE_UNKNOWN, MODE_OPEN, MODE_WATCHED, MODE_LIMITED };

static struct {
	pthread_mutex_t mutex; /* for the start */
	int mode;
	int many; /* more than one device: a thread may change devices between launches */
	uint32_t seeds; /* given to threads: their batches differ */
	uint64_t retry_ns; /* not before then is it decided again; 0: it has not been tried */
} self = {.mutex = PTHREAD_MUTEX_INITIALIZER};

_Thread_local struct batch thread_batch __attribute__((tls_model("initial-exec"))) = {
	.only = BATCH_NO_STREAM};

CUcontext batch_current(void)
{
	CUcontext context = NULL;
	fn_cuCtxGetCurrent get = ORIGINAL(cuCtxGetCurrent);
	return get && get(&context) == CUDA_SUCCESS ? context : NULL;
}

static int some_share(void)
{
	int limited = 0;
	for (int i = 0; i < HAMI_DEVICES; i++)
		limited |= runtime_cores(i) < 100;
	return limited && runtime_policy() != POLICY_DISABLE;
}

/*
 * Decides how this process is held, once for all when that can be known. While the limits cannot be
 * read, which may pass, no memory is given out, and launches go on.
 */
static int start(void)
{
	uint64_t now = prim_now(), due = __atomic_load_n(&self.retry_ns, __ATOMIC_RELAXED);
	if (now < due && due <= now + RETRY_NS)
		return MODE_OPEN;
	enum gate gate = runtime_gate();
	if (gate == GATE_CLOSED) {
		__atomic_store_n(&self.retry_ns, now + RETRY_NS, __ATOMIC_RELAXED);
		return MODE_OPEN;
	}
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
 * How long the holder of the lease has still to wait: for time to spend, for neighbours, for queued
 * work.
 */
static uint64_t wait_as_holder(const struct place *p, const struct spans_flight *f, uint64_t batch,
			       int patient, uint64_t now)
{
	unsigned percent = borrow_rate(p->device, p->percent, now);
	int64_t balance = share_refill(p->device, percent, now);
	uint64_t wait = pace_wait(balance, percent),
		 turn = turns_wait(p->device, percent, balance, f, batch, now);
	if (!wait)
		wait = turn;
	if (wait)
		lease_pause(p->device, f, now);
	if (wait || !patient)
		return wait;
	/* the first kernels may take any time: else hundreds would be queued unpaid */
	if (f->unknown > 1 && !place_measured(p))
		return LOOK_NS;
	return pace_ahead(f->ns, f->spans);
}

/*
 * Waits until this process has the lease, there is time to spend, nobody goes first, and little
 * enough is queued, and claims the cost of the launch that waits: else all threads that wait would
 * launch at once. 0 when nothing was enforced.
 */
static int wait_for_turn(struct place *p, uint64_t cost)
{
	uint64_t batch = cost > PACE_BATCH_NS ? cost : PACE_BATCH_NS,
		 patience = prim_now() + AHEAD_PATIENCE_NS;
	for (;;) {
		share_heed_monitor();
		if (!share_enforced())
			return 0;
		uint64_t now = prim_now();
		share_give(p->device, spans_harvest(p, share_books(p->device), now));
		struct spans_flight f = spans_flight(p, now);
		uint64_t wait = lease_wait(p->device, &f, now);
		if (!wait)
			wait = wait_as_holder(p, &f, batch, now < patience, now);
		if (!wait && share_claim(p->device, (int64_t)cost)) {
			lease_extend(p->device, now + f.ns + batch, f.unknown || !cost, now);
			return 1;
		}
		if (f.sliced)
			marks_look(p);
		uint64_t most = f.sliced ? LOOK_NS : PACE_SLICE_NS;
		prim_sleep_until(now + (wait < most ? wait : most));
	}
}

/* Ends a batch: the thread is nowhere from here on. */
static void shut(struct batch *b)
{
	b->open = 0;
	b->place = NULL;
	b->only = BATCH_NO_STREAM;
}

/*
 * A batch that cannot be ended where it began: its estimate stands, and it is paid at once. Calls
 * no driver.
 */
static void abandon(struct batch *b)
{
	if (!batch_stale(b))
		span_discard(b->place, b->span.start);
	if (!b->span.free)
		share_give(b->device, b->claimed - (int64_t)b->sum);
	shut(b);
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
	shut(b);
	if (!p)
		return 0;
	uint32_t generation = place_generation(p), seed = b->seed;
	if (p->percent == 100) {
		*b = (struct batch){.only = BATCH_NO_STREAM,
				    .place = p,
				    .generation = generation,
				    .context = context,
				    .before = l->key,
				    .seed = seed};
		return 0;
	}
	uint64_t cost = cost_of(l->key, l->before);
	int free = !wait_for_turn(p, cost);
	if (!seed) {
		seed = __atomic_add_fetch(&self.seeds, 1, __ATOMIC_RELAXED);
		prim_at_thread_end(thread_ends, b);
	}
	/* the thread may change devices, and with them where the default streams are */
	int changes = self.many && !stream_is_made(l->stream);
	*b = (struct batch){.open = 1,
			    .only = l->stream,
			    .current = changes ? batch_current() : NULL,
			    .place = p,
			    .generation = generation,
			    .context = context,
			    .device = p->device,
			    .before = l->key,
			    .seed = seed,
			    .claimed = free ? 0 : (int64_t)cost};
	b->size = pace_batch(&b->seed);
	b->span = (struct span){.stream = l->stream, .opened_ns = prim_now(), .free = free};
	b->span.charged_then = span_anchor(p, l->stream);
	b->span.after = span_running(p, l->stream);
	return 1;
}

/*
 * Whether a launch works where the batch is: the place, as far as is asked, and always the device.
 */
static int continues(struct batch *b, CUstream stream)
{
	if (batch_stale(b))
		return 0;
	if (!self.many ||
	    (stream_is_made(stream) && (stream == b->span.stream || stream == b->other)))
		return 1;
	if (stream_context(stream) != b->context)
		return 0;
	b->other = stream_is_made(stream) ? stream : b->other;
	return 1;
}

/* Nothing is limited where the launch works, as far as is known at a glance. */
static int passes(const struct batch *b, CUstream stream)
{
	return b->place && !batch_stale(b) && stream_context(stream) == b->context;
}

/* Counts a launch into the thread's batch; 1 when the batch ends with it. */
static int count(struct batch *b, struct launch *l)
{
	l->cost = cost_of(l->key, l->before);
	b->span.unmeasured |= b->span.stream != l->stream;
	b->guess = l->cost ? 0 : place_guess(b->place);
	b->sum += l->cost ? l->cost : b->guess;
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
	struct batch *b = &thread_batch;
	int mode = __atomic_load_n(&self.mode, __ATOMIC_ACQUIRE);
	if (!mode)
		mode = start();
	if (mode != MODE_LIMITED) {
		if (mode == MODE_WATCHED)
			share_heed_monitor();
		return;
	}
	l->before = b->before;
	b->before = l->key;
	if (b->open && !continues(b, l->stream))
		abandon(b);
	if (b->open ? !count(b, l) : passes(b, l->stream))
		return;
	/*
	 * measured alone: the batch may hold a pause of the program, and only known costs bound
	 * that
	 */
	if (b->open && !l->cost) {
		b->sum -= b->guess;
		abandon(b);
	}
	int before = capture_relax();
	CUcontext context = b->open ? b->context : stream_context(l->stream);
	int entered = context_enter(context);
	checkpoint(b, l, context);
	context_leave(entered);
	capture_restore(before);
}

/*
 * The host's time for a launch that found the device idle, and how much of it was for certain no
 * work of the device's.
 */
static void note_delay(struct span *s, const struct launch *l)
{
	/* else the launch may have waited for its work */
	int working = l->idle && !stream_idle(l->stream);
	s->late_ns = l->mid && span_passed(l->mid) ? prim_now() - l->mid_ns : 0;
	s->loading_ns = working ? s->late_ns : 0;
}

/*
 * Ends the thread's batch after its last launch: marks, pays by estimate, leaves the rest to the
 * harvest.
 */
static void close_batch(struct batch *b, const struct launch *l, CUresult result)
{
	struct span *s = &b->span;
	s->mid = l->mid;
	note_delay(s, l);
	s->key = result == CUDA_SUCCESS ? l->key : 0;
	s->before = l->before;
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
	shut(b);
}

CUresult limiter_after(struct launch *l, CUresult result)
{
	struct batch *b = &thread_batch;
	if (!l->checkpoint || !b->open)
		return result;
	if (batch_stale(b)) {
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
	struct batch *b = &thread_batch;
	if (!b->open)
		return;
	if (!batch_stale(b))
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

/*
 * How long to sleep until the next look; 0: look no more, because the work ends soon and nobody
 * else is seen. Short at first for work of which nothing is known: its program waits for us, too.
 */
static uint64_t next_look(const struct spans_flight *f, int others, uint64_t waited)
{
	uint64_t part = waited / 4 > WATCH_LEAST_NS ? waited / 4 : WATCH_LEAST_NS;
	int soon = f->ns < LOOK_NS * 2;
	if (!f->lasting || (!others && !f->unknown && soon))
		return 0;
	if (f->unknown)
		return part < LOOK_NS ? part : LOOK_NS;
	return soon ? LOOK_NS / 3 : LOOK_NS;
}

static void watch(struct place *p, int (*ended)(const void *handle), const void *handle)
{
	uint64_t began = prim_now(), before = marks_others(p, began), now = began;
	while (now - began < WATCH_MOST_NS && !ended(handle)) {
		share_give(p->device, spans_harvest(p, share_books(p->device), now));
		struct spans_flight f = spans_flight(p, now);
		uint64_t look = next_look(&f, marks_others(p, now) != before, now - began);
		if (!look)
			return;
		marks_look(p);
		prim_sleep_until(now + look);
		now = prim_now();
	}
}

void limiter_watch(CUcontext context, int (*ended)(const void *handle), const void *handle)
{
	struct place *p = context && limited() ? place_known(context) : NULL;
	if (!p || !spans_flight(p, 0).lasting)
		return;
	int before = capture_relax(), entered = context_enter(context);
	watch(p, ended, handle);
	context_leave(entered);
	capture_restore(before);
}

void limiter_settle(CUcontext context)
{
	struct place *p = context && limited() ? place_known(context) : NULL;
	if (!p || !spans_flight(p, 0).spans)
		return;
	int before = capture_relax(), entered = context_enter(context);
	uint64_t now = prim_now();
	share_give(p->device, spans_harvest(p, share_books(p->device), now));
	lease_settle(p->device, now + spans_flight(p, now).ns);
	context_leave(entered);
	capture_restore(before);
}

void limiter_leave_begin(struct span_rest *rest, CUcontext context)
{
	struct batch *b = &thread_batch;
	if (b->open && b->context == context && !batch_stale(b))
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
	self.retry_ns = 0;
	limiter_word = &starting;
	places_after_fork();
	lease_after_fork();
	cost_reset();
	thread_batch = (struct batch){.only = BATCH_NO_STREAM};
}
