/* SPDX-License-Identifier: Apache-2.0 */
#include "context/current.h"
#include "compute/limiter.h"

#include <pthread.h>
#include <stdlib.h>

#include "compute/batch.h"
#include "compute/borrow.h"
#include "compute/lease.h"
#include "compute/guess.h"
#include "compute/heartbeat.h"
#include "context/capture.h"
#include "model/pace.h"
#include "platform/prim.h"
#include "driver/resolve.h"
#include "settings/settings.h"
#include "compute/budget.h"
#include "compute/turn_queue.h"

#define LOOK_NS 200000ULL       /* between two looks whether others have the device */
#define ALONE_LOOK_NS 1000000ULL /* where nobody else has had it lately */
#define YOUNG 16                /* batches of a thread that is as likely to end as to go on */
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
	int blocking; /* a launch returns when its work has ended */
	uint32_t seeds; /* given to threads: their batches differ */
	uint64_t retry_ns; /* not before then is it decided again; 0: it has not been tried */
} self = {.mutex = PTHREAD_MUTEX_INITIALIZER};

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
		const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
		self.blocking = blocking && atoi(blocking);
		self.many = word && budget_device_count() != 1;
		if (mode == MODE_LIMITED)
			atexit(limiter_settle_at_exit); /* runs before the driver is gone */
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
	if (f->unknown > 1 && !__atomic_load_n(&p->measured, __ATOMIC_RELAXED))
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
	uint64_t batch = cost > PACE_BATCH_NS ? cost : PACE_BATCH_NS, patience = 0;
	int waited = 0;
	for (;;) {
		budget_wait_for_monitor();
		if (!budget_is_enforced())
			return 0;
		uint64_t now = prim_now();
		patience = patience ? patience : now + AHEAD_PATIENCE_NS;
		struct work_in_flight f = heartbeat_look(p, now, waited++);
		uint64_t wait = lease_wait(p->device, &f, now);
		if (!wait)
			wait = wait_as_holder(p, &f, batch, now < patience, now);
		if (!wait && budget_claim(p->device, (int64_t)cost)) {
			lease_extend(p->device, now + f.ns + batch, f.unknown || !cost, now);
			return 1;
		}
		uint64_t most = f.sliced || f.shared ? LOOK_NS
				: f.spans	     ? ALONE_LOOK_NS
						     : PACE_SLICE_NS;
		prim_sleep_until(now + (wait < most ? wait : most));
	}
}

static void thread_ends(void *batch)
{
	struct batch *b = batch;
	if (b->open)
		batch_abandon(b);
	b->seed = 0; /* who launches still, in another such function, is called once more */
}

/*
 * The size of the thread's next batch: what a wait has left of the last one, so that every launch
 * is the last of a batch now and then.
 */
static uint64_t choose_size(struct batch *b)
{
	return b->rest ? b->rest : pace_batch_size(&b->seed);
}

/* What a launch is taken to cost. 0: nothing is known of it. */
static uint64_t known_cost(const struct launch *l)
{
	uint64_t cost = cost_of(l->key, l->before);
	return cost ? cost : cost_of_kin(l->kin);
}

/* Begins a batch. 0 when this launch is none of ours to limit. */
static int open_batch(struct batch *b, const struct launch *l, CUcontext context)
{
	struct compute_context *p = capture_is_active(l->stream) ? NULL : contexts_get(context);
	batch_reset(b);
	if (!p)
		return 0;
	uint32_t generation = compute_context_generation(p);
	if (p->percent == 100) {
		*b = (struct batch){.only = BATCH_NO_STREAM,
				    .compute_context = p,
				    .generation = generation,
				    .context = context,
				    .before = l->key,
				    .seed = b->seed,
				    .young = b->young};
		return 0;
	}
	if (!b->seed) {
		b->seed = __atomic_add_fetch(&self.seeds, 1, __ATOMIC_RELAXED);
		b->young = YOUNG;
		prim_at_thread_end(thread_ends, b);
	}
	uint64_t cost = known_cost(l), size = choose_size(b),
		 /* the process may end before the next checkpoint */
		 claim = cost > b->last ? cost : b->last;
	int free = !wait_for_turn(p, claim);
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
			    .seed = b->seed,
			    .young = b->young,
			    .size = size,
			    .unsettled = 1,
			    .claimed = free ? 0 : (int64_t)claim};
	b->span = (struct span){.opened_ns = prim_now(), .free = free};
	compute_context_count_open(p, generation, size);
	span_begin(p, &b->span, l->stream);
	return 1;
}

/*
 * Whether a launch works where the batch is: in its context, as far as is asked, and always on its
 * device.
 */
static int stays_in_context(const struct batch *b, CUstream stream)
{
	if (batch_is_stale(b))
		return 0;
	if (!self.many || (stream_is_made(stream) && batch_is_on_stream(&b->span, stream)))
		return 1;
	return current_stream_context(stream) == b->context;
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
	l->cost = known_cost(l);
	b->sum += l->cost ? l->cost : guess_of(b->device);
	b->launches++;
	return !l->cost || l->graph || self.blocking || b->sum >= b->size ||
	       b->launches >= BATCH_LAUNCHES;
}

/* The slow way of a launch: it begins a batch, or ends one, or both. */
static void begin_or_end_batch(struct batch *b, struct launch *l, CUcontext context)
{
	int ends = b->open;
	if (!ends) {
		if (!open_batch(b, l, context))
			return;
		ends = count_launch(b, l);
		if (!ends && !b->span.after) /* where the device is before the launch */
			b->span.start = span_record_event(b->compute_context, l->stream);
	}
	l->checkpoint = ends;
	if (!ends || capture_is_active(l->stream))
		return;
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
		batch_abandon(b);
	/* one of which nothing is known is measured by itself */
	if (b->open && (!known_cost(l) || !batch_add_stream(&b->span, l->stream)))
		batch_close(b, prim_now());
	if (b->open ? !count_launch(b, l) : is_unlimited_here(b, l->stream))
		return;
	int before = capture_relax();
	CUcontext context = b->open ? b->context : current_stream_context(l->stream);
	int entered = current_push(context);
	begin_or_end_batch(b, l, context);
	current_pop(entered);
	capture_restore(before);
}

/* The launch's stream becomes the batch's first: its end is taken first, and gives the sample. */
static void move_to_front(struct span *s, CUstream stream)
{
	for (int i = 0; i < s->streams; i++)
		if (s->stream[i] == stream) {
			s->stream[i] = s->stream[0];
			s->stream[0] = stream;
		}
}

/*
 * Ends the thread's batch after its last launch: marks, pays by estimate, leaves the rest to the
 * harvest.
 */
static void close_batch(struct batch *b, const struct launch *l, CUresult result)
{
	struct span *s = &b->span;
	/* the launch found the device idle; else it may have waited for work */
	int idle = l->mid && !self.blocking && span_event_passed(l->mid);
	s->late_ns = idle ? prim_now() - l->mid_ns : 0;
	s->mid = l->mid;
	s->key = result == CUDA_SUCCESS ? l->key : 0;
	s->kin = l->kin;
	s->before = l->before;
	s->single = !l->graph;
	s->predicted = l->cost ? b->sum : PACE_UNKNOWN;
	move_to_front(s, l->stream);
	if (!l->mid)
		span_discard(b->compute_context, s);
	int measured = l->mid && span_end(b->compute_context, s);
	uint64_t now = prim_now(); /* the host may have been held up on the way */
	s->launched_ns = self.blocking ? l->mid_ns : now;
	batch_hand_over(b, measured);
}

CUresult limiter_after(struct launch *l, CUresult result)
{
	struct batch *b = &thread_batch;
	if (!l->checkpoint || !b->open)
		return result;
	if (batch_is_stale(b)) {
		batch_abandon(b);
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
	batch_abandon(b);
}

void limiter_after_fork(void)
{
	pthread_mutex_init(&self.mutex, NULL); /* another thread of the parent may have held it */
	self.mode = MODE_UNKNOWN;
	self.retry_ns = 0;
	limiter_word = &starting;
	contexts_after_fork();
	lease_after_fork();
	guess_after_fork();
	cost_reset();
	thread_batch = (struct batch){.only = BATCH_NO_STREAM};
}
