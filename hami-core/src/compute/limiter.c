/* SPDX-License-Identifier: Apache-2.0 */
#include "context/current.h"
#include "compute/limiter.h"

#include <pthread.h>
#include <stdlib.h>

#include "compute/batch.h"
#include "compute/borrow.h"
#include "compute/lease.h"
#include "compute/heartbeat.h"
#include "context/capture.h"
#include "model/pace.h"
#include "compute/contexts.h"
#include "platform/prim.h"
#include "driver/resolve.h"
#include "settings/settings.h"
#include "compute/budget.h"
#include "compute/turn_queue.h"

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

CUcontext batch_current_context(void)
{
	CUcontext context = NULL;
	fn_cuCtxGetCurrent get = ORIGINAL(cuCtxGetCurrent);
	return get && get(&context) == CUDA_SUCCESS ? context : NULL;
}

static int has_limited_share(void)
{
	int limited = 0;
	for (int i = 0; i < HAMI_DEVICES; i++)
		limited |= settings_cores(i) < 100;
	return limited && settings_policy() != POLICY_DISABLE;
}

/*
 * Decides how this process is held, once for all when that can be known. While the limits cannot be
 * read, which may pass, no memory is given out, and launches go on.
 */
static int decide_mode(void)
{
	uint64_t now = prim_now(), due = __atomic_load_n(&self.retry_ns, __ATOMIC_RELAXED);
	if (now < due && due <= now + RETRY_NS)
		return MODE_OPEN;
	enum gate gate = settings_gate();
	if (gate == GATE_CLOSED) {
		__atomic_store_n(&self.retry_ns, now + RETRY_NS, __ATOMIC_RELAXED);
		return MODE_OPEN;
	}
	pthread_mutex_lock(&self.mutex);
	if (!self.mode) {
		const int32_t *word = gate == GATE_LIMITED ? budget_monitor_word() : NULL;
		int mode = !word ? MODE_OPEN : has_limited_share() ? MODE_LIMITED : MODE_WATCHED;
		self.many = word && budget_device_count() != 1;
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
static uint64_t wait_as_holder(const struct compute_context *p, const struct work_in_flight *f,
			       uint64_t batch, int patient, uint64_t now)
{
	unsigned percent = borrow_rate(p->device, p->percent, now);
	int64_t balance = budget_refill(p->device, percent, now);
	uint64_t wait = pace_wait(balance, percent),
		 turn = turn_queue_wait(p->device, percent, balance, f, batch, now);
	if (!wait)
		wait = turn;
	if (wait)
		lease_yield(p->device, f, now);
	if (wait || !patient)
		return wait;
	/* the first kernels may take any time: else hundreds would be queued unpaid */
	if (f->unknown > 1 && !compute_context_measured_guess(p))
		return LOOK_NS;
	return pace_queue_wait(f->ns, f->spans);
}

/*
 * Waits until this process has the lease, there is time to spend, nobody goes first, and little
 * enough is queued, and claims the cost of the launch that waits: else all threads that wait would
 * launch at once. 0 when nothing was enforced.
 */
static int wait_for_turn(struct compute_context *p, uint64_t cost)
{
	uint64_t batch = cost > PACE_BATCH_NS ? cost : PACE_BATCH_NS,
		 patience = prim_now() + AHEAD_PATIENCE_NS;
	for (;;) {
		budget_wait_for_monitor();
		if (!budget_is_enforced())
			return 0;
		uint64_t now = prim_now();
		budget_add(p->device, spans_harvest(p, budget_of(p->device), now));
		struct work_in_flight f = spans_in_flight(p, now);
		uint64_t wait = lease_wait(p->device, &f, now);
		if (!wait)
			wait = wait_as_holder(p, &f, batch, now < patience, now);
		if (!wait && budget_claim(p->device, (int64_t)cost)) {
			lease_extend(p->device, now + f.ns + batch, f.unknown || !cost, now);
			return 1;
		}
		if (f.sliced)
			heartbeat_poll(p);
		uint64_t most = f.sliced ? LOOK_NS : PACE_SLICE_NS;
		prim_sleep_until(now + (wait < most ? wait : most));
	}
}

/* Ends a batch: the thread is nowhere from here on. */
static void reset_batch(struct batch *b)
{
	b->open = 0;
	b->compute_context = NULL;
	b->only = BATCH_NO_STREAM;
}

/*
 * A batch that cannot be ended where it began: its estimate stands, and it is paid at once. Calls
 * no driver.
 */
static void abandon_batch(struct batch *b)
{
	if (!batch_is_stale(b))
		span_release_event(b->compute_context, b->span.start);
	if (!b->span.free)
		budget_add(b->device, b->claimed - (int64_t)b->sum);
	reset_batch(b);
}

static void thread_ends(void *batch)
{
	struct batch *b = batch;
	if (b->open)
		abandon_batch(b);
	b->seed = 0; /* who launches still, in another such function, is called once more */
}

/* Begins a batch. 0 when this launch is none of ours to limit. */
static int open_batch(struct batch *b, const struct launch *l, CUcontext context)
{
	struct compute_context *p = capture_is_active(l->stream) ? NULL : contexts_get(context);
	reset_batch(b);
	if (!p)
		return 0;
	uint32_t generation = compute_context_generation(p), seed = b->seed;
	if (p->percent == 100) {
		*b = (struct batch){.only = BATCH_NO_STREAM,
				    .compute_context = p,
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
			    .current = changes ? batch_current_context() : NULL,
			    .compute_context = p,
			    .generation = generation,
			    .context = context,
			    .device = p->device,
			    .before = l->key,
			    .seed = seed,
			    .claimed = free ? 0 : (int64_t)cost};
	b->size = pace_batch_size(&b->seed);
	b->span = (struct span){.stream = l->stream, .opened_ns = prim_now(), .free = free};
	b->span.charged_then = span_begin_timeline(p, l->stream);
	b->span.after = span_find_running(p, l->stream);
	return 1;
}

/*
 * Whether a launch works where the batch is: in its context, as far as is asked, and always on its
 * device.
 */
static int stays_in_context(struct batch *b, CUstream stream)
{
	if (batch_is_stale(b))
		return 0;
	if (!self.many ||
	    (stream_is_made(stream) && (stream == b->span.stream || stream == b->other)))
		return 1;
	if (current_stream_context(stream) != b->context)
		return 0;
	b->other = stream_is_made(stream) ? stream : b->other;
	return 1;
}

/* Nothing is limited where the launch works, as far as is known at a glance. */
static int is_unlimited_here(const struct batch *b, CUstream stream)
{
	return b->compute_context && !batch_is_stale(b) &&
	       current_stream_context(stream) == b->context;
}

/* Counts a launch into the thread's batch; 1 when the batch ends with it. */
static int count_launch(struct batch *b, struct launch *l)
{
	l->cost = cost_of(l->key, l->before);
	b->span.unmeasured |= b->span.stream != l->stream;
	b->guess = l->cost ? 0 : compute_context_guess(b->compute_context);
	b->sum += l->cost ? l->cost : b->guess;
	b->launches++;
	return !l->cost || l->graph || b->sum >= b->size || b->launches >= BATCH_LAUNCHES;
}

static int is_stream_idle(CUstream stream)
{
	fn_cuStreamQuery query = ORIGINAL(cuStreamQuery);
	return query && query(stream) == CUDA_SUCCESS;
}

/* The slow way of a launch: it begins a batch, or ends one, or both. */
static void begin_or_end_batch(struct batch *b, struct launch *l, CUcontext context)
{
	int ends = b->open;
	if (!ends) {
		if (!open_batch(b, l, context))
			return;
		ends = count_launch(b, l);
		if (!ends && !b->span.after) /* where the stream is before the launch */
			b->span.start = span_record_event(b->compute_context, l->stream);
	}
	l->checkpoint = ends;
	if (!ends || capture_is_active(l->stream))
		return;
	l->idle = !l->cost && is_stream_idle(l->stream);
	l->mid = span_record_event(b->compute_context, l->stream);
	l->mid_ns = prim_now();
}

void limiter_before(struct launch *l)
{
	struct batch *b = &thread_batch;
	int mode = __atomic_load_n(&self.mode, __ATOMIC_ACQUIRE);
	if (!mode)
		mode = decide_mode();
	if (mode != MODE_LIMITED) {
		if (mode == MODE_WATCHED)
			budget_wait_for_monitor();
		return;
	}
	l->before = b->before;
	b->before = l->key;
	if (b->open && !stays_in_context(b, l->stream))
		abandon_batch(b);
	if (b->open ? !count_launch(b, l) : is_unlimited_here(b, l->stream))
		return;
	/*
	 * measured alone: the batch may hold a pause of the program, and only known costs bound
	 * that
	 */
	if (b->open && !l->cost) {
		b->sum -= b->guess;
		abandon_batch(b);
	}
	int before = capture_relax();
	CUcontext context = b->open ? b->context : current_stream_context(l->stream);
	int entered = current_push(context);
	begin_or_end_batch(b, l, context);
	current_pop(entered);
	capture_restore(before);
}

/*
 * The host's time for a launch that found the device idle, and how much of it was for certain no
 * work of the device's.
 */
static void note_delay(struct span *s, const struct launch *l)
{
	/* else the launch may have waited for its work */
	int working = l->idle && !is_stream_idle(l->stream);
	s->late_ns = l->mid && span_event_passed(l->mid) ? prim_now() - l->mid_ns : 0;
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
	s->end = l->mid ? span_record_event(b->compute_context, l->stream) : NULL;
	if (s->end) {
		span_add(b->compute_context, s);
	} else {
		span_release_event(b->compute_context, s->start);
		span_release_event(b->compute_context, s->mid);
	}
	budget_add(b->device, b->claimed - (int64_t)s->paid);
	reset_batch(b);
}

CUresult limiter_after(struct launch *l, CUresult result)
{
	struct batch *b = &thread_batch;
	if (!l->checkpoint || !b->open)
		return result;
	if (batch_is_stale(b)) {
		abandon_batch(b);
		return result;
	}
	int before = capture_relax(), entered = current_push(b->context);
	close_batch(b, l, result);
	current_pop(entered);
	capture_restore(before);
	return result;
}

void limiter_pay_by_estimate(struct launch *l)
{
	struct batch *b = &thread_batch;
	if (!b->open)
		return;
	if (!batch_is_stale(b))
		span_release_event(b->compute_context, l->mid);
	l->checkpoint = 0;
	l->mid = NULL;
	abandon_batch(b);
}

static int is_mode_limited(void)
{
	return __atomic_load_n(&self.mode, __ATOMIC_ACQUIRE) == MODE_LIMITED;
}

CUcontext limiter_context_to_settle(CUstream stream)
{
	return is_mode_limited() ? current_stream_context(stream) : NULL;
}

/*
 * How long to sleep until the next look; 0: look no more, because the work ends soon and nobody
 * else is seen. Short at first for work of which nothing is known: its program waits for us, too.
 */
static uint64_t next_look(const struct work_in_flight *f, int others, uint64_t waited)
{
	uint64_t part = waited / 4 > WATCH_LEAST_NS ? waited / 4 : WATCH_LEAST_NS;
	int soon = f->ns < LOOK_NS * 2;
	if (!f->lasting || (!others && !f->unknown && soon))
		return 0;
	if (f->unknown)
		return part < LOOK_NS ? part : LOOK_NS;
	return soon ? LOOK_NS / 3 : LOOK_NS;
}

static void watch_context(struct compute_context *p, int (*ended)(const void *handle),
			  const void *handle)
{
	uint64_t began = prim_now(), now = began;
	uint64_t before = heartbeat_count_preemptions(p, began);
	while (now - began < WATCH_MOST_NS && !ended(handle)) {
		budget_add(p->device, spans_harvest(p, budget_of(p->device), now));
		struct work_in_flight f = spans_in_flight(p, now);
		int others = heartbeat_count_preemptions(p, now) != before;
		uint64_t look = next_look(&f, others, now - began);
		if (!look)
			return;
		heartbeat_poll(p);
		prim_sleep_until(now + look);
		now = prim_now();
	}
}

void limiter_watch_until(CUcontext context, int (*ended)(const void *handle), const void *handle)
{
	struct compute_context *p = context && is_mode_limited() ? contexts_find(context) : NULL;
	if (!p || !spans_in_flight(p, 0).lasting)
		return;
	int before = capture_relax(), entered = current_push(context);
	watch_context(p, ended, handle);
	current_pop(entered);
	capture_restore(before);
}

void limiter_settle(CUcontext context)
{
	struct compute_context *p = context && is_mode_limited() ? contexts_find(context) : NULL;
	if (!p || !spans_in_flight(p, 0).spans)
		return;
	int before = capture_relax(), entered = current_push(context);
	uint64_t now = prim_now();
	budget_add(p->device, spans_harvest(p, budget_of(p->device), now));
	lease_shorten(p->device, now + spans_in_flight(p, now).ns);
	current_pop(entered);
	capture_restore(before);
}

void limiter_remove_context_begin(struct unmeasured_work *rest, CUcontext context)
{
	struct batch *b = &thread_batch;
	if (b->open && b->context == context && !batch_is_stale(b))
		abandon_batch(b);
	contexts_remove(context, rest);
}

void limiter_remove_context_end(const struct unmeasured_work *rest)
{
	uint64_t took = rest->since_ns ? prim_now() - rest->since_ns : 0;
	if (took > rest->paid_ns)
		budget_add(rest->device, -(int64_t)(took - rest->paid_ns));
}

void limiter_remove_context(CUcontext context)
{
	struct unmeasured_work rest;
	limiter_remove_context_begin(&rest, context);
	limiter_remove_context_end(&rest);
}

void limiter_after_fork(void)
{
	pthread_mutex_init(&self.mutex, NULL); /* another thread of the parent may have held it */
	self.mode = MODE_UNKNOWN;
	self.retry_ns = 0;
	limiter_word = &starting;
	contexts_after_fork();
	lease_after_fork();
	cost_reset();
	thread_batch = (struct batch){.only = BATCH_NO_STREAM};
}
