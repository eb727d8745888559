/* SPDX-License-Identifier: Apache-2.0 */
#include "limiter.h"

#include <pthread.h>
#include <stdlib.h>

#include "borrow.h"
#include "capture.h"
#include "pace.h"
#include "prim.h"
#include "resolve.h"
#include "runtime.h"
#include "share.h"
#include "spans.h"
#include "turns.h"

#define PLACES 64               /* contexts of a process that are measured */
#define BATCH_LAUNCHES 4096     /* most launches between two checkpoints */
#define AHEAD_PATIENCE_NS 500000000ULL /* a kernel may wait for one that we hold back: then let go */

static const int32_t starting = -3; /* nothing known yet: take the slow way */
static const int32_t never = LIMITER_IDLE;
const int32_t *limiter_word = &starting;

enum mode { MODE_UNKNOWN, MODE_OPEN, MODE_WATCHED, MODE_LIMITED };

static struct {
	pthread_mutex_t mutex; /* for places, their spans, and learning costs */
	int mode;
	int many; /* more than one device: a thread may change devices between launches */
	uint32_t generation; /* of everything a thread remembers; counts forks and contexts gone */
	uint32_t seeds; /* given to threads: their batches differ */
	struct place *place[PLACES];
	int places;
} self = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* What a thread has launched since its last checkpoint. */
struct batch {
	uint32_t generation;
	int open;
	CUcontext context;   /* where the batch is */
	CUcontext unlimited; /* the last one seen whose device is not limited; NULL: none */
	struct place *place;
	struct span span;
	uint64_t size, sum; /* nanoseconds: when to close it; launched so far */
	int launches;
	uint32_t seed;
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

static CUcontext current(void)
{
	CUcontext context = NULL;
	fn_cuCtxGetCurrent get = ORIGINAL(cuCtxGetCurrent);
	return get && get(&context) == CUDA_SUCCESS ? context : NULL;
}

/* The place of a context, or an unused one, or NULL (needs the mutex). */
static struct place *find_place(CUcontext context)
{
	struct place *unused = NULL;
	for (int i = 0; i < self.places; i++) {
		if (self.place[i]->context == context)
			return self.place[i];
		if (!self.place[i]->context)
			unused = self.place[i];
	}
	if (!unused && self.places < PLACES && (unused = calloc(1, sizeof *unused)) != NULL)
		self.place[self.places++] = unused;
	return unused;
}

/* A context's place, made on first sight; NULL when there is none for it (needs the mutex). */
static struct place *place_of(CUcontext context)
{
	struct place *p = find_place(context);
	if (p && !p->context) {
		int device = runtime_current_device();
		if (device == -2)
			return NULL;
		*p = (struct place){.context = context, .device = device < 0 ? 0 : device, .first = 1, .next = 1};
		p->percent = device < 0 ? 100 : runtime_cores(device);
	}
	return p;
}

/* Waits until there is time to spend, nobody goes first, and little enough is queued. 0 when nothing was enforced. */
static int wait_for_turn(struct place *p, uint64_t cost)
{
	uint64_t patience = prim_now() + AHEAD_PATIENCE_NS;
	for (;;) {
		share_heed_monitor();
		if (!share_enforced())
			return 0;
		uint64_t now = prim_now();
		pthread_mutex_lock(&self.mutex);
		int64_t back = spans_harvest(p, share_books(p->device), now);
		uint64_t queued = p->queued, ahead = pace_ahead(queued, (unsigned)(p->next - p->first));
		pthread_mutex_unlock(&self.mutex);
		share_give(p->device, back);
		unsigned percent = borrow_rate(p->device, p->percent, now);
		int64_t balance = share_refill(p->device, percent, now);
		uint64_t wait = pace_wait(balance, percent), turn = turns_wait(p->device, percent, balance, queued, cost, now);
		if (!wait)
			wait = turn;
		if (!wait && now < patience)
			wait = ahead;
		if (!wait)
			return 1;
		prim_sleep_until(now + (wait < PACE_SLICE_NS ? wait : PACE_SLICE_NS));
	}
}

/* Begins a batch. 0 when this launch is none of ours to limit. */
static int open_batch(struct batch *b, const struct launch *l)
{
	CUcontext context = current();
	if (!context || capture_active(l->stream))
		return 0;
	uint32_t generation = __atomic_load_n(&self.generation, __ATOMIC_RELAXED);
	pthread_mutex_lock(&self.mutex);
	struct place *p = place_of(context);
	pthread_mutex_unlock(&self.mutex);
	if (!p || p->percent == 100) {
		b->unlimited = p ? context : NULL;
		b->generation = generation;
		return 0;
	}
	uint64_t cost = cost_of(l->key);
	int free = !wait_for_turn(p, cost > PACE_BATCH_NS ? cost : PACE_BATCH_NS);
	*b = (struct batch){.generation = generation, .open = 1, .context = context, .place = p, .seed = b->seed};
	if (!b->seed)
		b->seed = __atomic_add_fetch(&self.seeds, 1, __ATOMIC_RELAXED);
	b->size = pace_batch(&b->seed);
	b->span = (struct span){.stream = l->stream, .opened_ns = prim_now(), .free = free};
	pthread_mutex_lock(&self.mutex);
	span_anchor(p, l->stream);
	b->span.after = span_running(p, l->stream);
	pthread_mutex_unlock(&self.mutex);
	return 1;
}

/* Marks where the stream is before a launch: the start of a batch on an idle stream, and the last one. */
static CUevent mark(struct batch *b, CUstream stream)
{
	pthread_mutex_lock(&self.mutex);
	CUevent event = span_mark(b->place, stream);
	pthread_mutex_unlock(&self.mutex);
	return event;
}

/* A context has gone since the batch began; it may have been this one. */
static int stale(const struct batch *b)
{
	return b->generation != __atomic_load_n(&self.generation, __ATOMIC_RELAXED);
}

/* Nothing is limited where the thread is now, as far as is known at a glance. */
static int passes(const struct batch *b)
{
	return b->unlimited && !stale(b) && current() == b->unlimited;
}

/* A batch that cannot be ended where it began: its estimate stands, and it is paid at once. */
static void abandon(struct batch *b)
{
	if (!stale(b)) {
		pthread_mutex_lock(&self.mutex);
		span_discard(b->place, b->span.start);
		pthread_mutex_unlock(&self.mutex);
		if (!b->span.free)
			share_give(b->place->device, -(int64_t)b->sum);
	}
	b->open = 0;
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

/* The slow way of a launch: it begins a batch, or ends one, or both. */
static void checkpoint(struct batch *b, struct launch *l)
{
	int ends = b->open;
	if (!ends) {
		if (!open_batch(b, l))
			return;
		ends = count(b, l);
		if (!ends && !b->span.after)
			b->span.start = mark(b, l->stream);
	}
	l->checkpoint = ends;
	if (!ends || capture_active(l->stream))
		return;
	l->mid = mark(b, l->stream);
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
	if (b->open && (stale(b) || (self.many && current() != b->context)))
		abandon(b);
	if (b->open ? !count(b, l) : passes(b))
		return;
	if (b->open && !l->cost) { /* measured alone: the batch may hold a pause of the program, and only known costs bound that */
		b->sum -= PACE_NEW_NS;
		abandon(b);
	}
	int before = capture_relax();
	checkpoint(b, l);
	capture_restore(before);
}

/* Ends the thread's batch after its last launch: marks, pays by estimate, leaves the rest to the harvest. */
static void close_batch(struct batch *b, const struct launch *l, CUresult result)
{
	struct span *s = &b->span;
	s->mid = l->mid;
	s->late_ns = l->mid && span_passed(l->mid) ? prim_now() - l->mid_ns : 0;
	s->key = result == CUDA_SUCCESS ? l->key : 0;
	s->predicted = l->cost ? b->sum : PACE_UNKNOWN;
	s->paid = s->free ? 0 : b->sum;
	pthread_mutex_lock(&self.mutex);
	s->end = l->mid ? span_mark(b->place, l->stream) : NULL;
	if (s->end) {
		span_add(b->place, s);
	} else {
		span_discard(b->place, s->start);
		span_discard(b->place, s->mid);
	}
	pthread_mutex_unlock(&self.mutex);
	share_give(b->place->device, -(int64_t)s->paid);
	b->open = 0;
}

CUresult limiter_after(struct launch *l, CUresult result)
{
	if (l->checkpoint) {
		int before = capture_relax();
		close_batch(&mine, l, result);
		capture_restore(before);
	}
	return result;
}

void limiter_forget(CUcontext context)
{
	pthread_mutex_lock(&self.mutex);
	for (int i = 0; i < self.places; i++)
		if (self.place[i]->context == context) {
			self.place[i]->context = NULL; /* not freed: another thread may be waiting in it */
			__atomic_add_fetch(&self.generation, 1, __ATOMIC_RELAXED);
			break;
		}
	pthread_mutex_unlock(&self.mutex);
}

void limiter_after_fork(void)
{
	pthread_mutex_init(&self.mutex, NULL); /* another thread of the parent may have held it */
	self.mode = MODE_UNKNOWN;
	self.places = 0;
	self.generation++;
	limiter_word = &starting;
	cost_reset();
	mine = (struct batch){0};
}
