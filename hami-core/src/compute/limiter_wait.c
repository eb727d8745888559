/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limiter_wait.c: what the limiter does where a program waits for its work, or gives up what it
 * runs in: it settles what has ended.
 */
#include "compute/limiter.h"

#include "compute/batch.h"
#include "compute/budget.h"
#include "compute/contexts.h"
#include "compute/heartbeat.h"
#include "compute/lease.h"
#include "context/capture.h"
#include "context/current.h"
#include "platform/prim.h"

#define LITTLE_NS 100000ULL
#define WATCH_LEAST_NS 20000ULL /* between two looks while a program waits for new work */
#define WATCH_MOST_NS 1000000000ULL /* then its wait is the driver's alone */
#define DRAIN_MOST_NS 1000000000ULL
#define LOOK_NS 200000ULL       /* between two looks whether others have the device */

/*
 * The program waits for its work. A batch of any size is measured up to there. A little one, whose
 * measuring would cost as much as it, stays open until it turns out to take longer than it looked.
 */
static void begin_wait(struct batch *b)
{
	b->waits_ns = b->open ? prim_now() : 0;
	if (b->open && b->sum >= LITTLE_NS)
		batch_close(b, b->waits_ns);
}

static void end_wait(struct batch *b)
{
	if (b->open && b->waits_ns && prim_now() - b->waits_ns > 2 * LITTLE_NS)
		batch_close(b, b->waits_ns);
	b->waits_ns = 0;
}

CUcontext limiter_context_to_settle(CUstream stream)
{
	if (!contexts_exist())
		return NULL;
	begin_wait(&thread_batch);
	return current_stream_context(stream);
}

/*
 * How long to sleep until the next look; 0: look no more, because the work ends soon and nobody
 * else is seen. Short at first for work of which nothing is known: its program waits for us, too.
 */
static uint64_t next_look(const struct work_in_flight *f, int others, uint64_t waited)
{
	uint64_t part = waited / 4 > WATCH_LEAST_NS ? waited / 4 : WATCH_LEAST_NS;
	int soon = f->ns < LOOK_NS * 2;
	if (!f->spans || (!f->lasting && !f->shared))
		return 0;
	if (!others && !f->shared && !f->unknown && soon)
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
		struct work_in_flight f = heartbeat_look(p, now, 1);
		int others = heartbeat_count_preemptions(p, now) != before;
		uint64_t look = next_look(&f, others, now - began);
		if (!look)
			return;
		prim_sleep_until(now + look);
		now = prim_now();
	}
}

void limiter_watch_until(CUcontext context, int (*ended)(const void *handle), const void *handle)
{
	struct compute_context *p = contexts_find(context);
	struct work_in_flight f = {0};
	if (p)
		f = spans_in_flight(p, 0);
	if (!f.lasting && !(f.spans && f.shared))
		return;
	int before = capture_relax(), entered = current_push(context);
	watch_context(p, ended, handle);
	current_pop(entered);
	capture_restore(before);
}

void limiter_settle(CUcontext context)
{
	end_wait(&thread_batch);
	struct compute_context *p = contexts_find(context);
	if (!p || !spans_in_flight(p, 0).spans)
		return;
	int before = capture_relax(), entered = current_push(context);
	uint64_t now = prim_now();
	lease_shorten(p->device, now + heartbeat_look(p, now, 0).ns);
	current_pop(entered);
	capture_restore(before);
}

/* Waits until the work of a context has ended, but not for ever, and pays for it. */
static void drain_context(struct compute_context *p)
{
	uint64_t now = prim_now(), until = now + DRAIN_MOST_NS;
	int before = capture_relax(), entered = current_push(p->context);
	for (;; now = prim_now()) {
		struct work_in_flight f = heartbeat_look(p, now, 1);
		if (!f.spans || now >= until)
			break;
		prim_sleep_until(now + (f.ns > LOOK_NS ? LOOK_NS : WATCH_LEAST_NS));
	}
	current_pop(entered);
	capture_restore(before);
}

void limiter_remove_context_begin(struct unmeasured_work *rest, CUcontext context)
{
	struct batch *b = &thread_batch;
	struct compute_context *p = contexts_find(context);
	if (b->context == context)
		batch_close(b, prim_now());
	if (p)
		drain_context(p);
	contexts_remove(context, rest);
}

/* What this process has launched by now is paid when it ends: nobody measures it afterwards. */
void limiter_settle_at_exit(void)
{
	struct compute_context *p;
	if (!contexts_exist())
		return;
	batch_close(&thread_batch, prim_now());
	for (int i = 0; (p = contexts_at(i)) != NULL; i++)
		if (p->context)
			drain_context(p);
}

static void poll_work(struct compute_context *p, int ended)
{
	uint64_t now = prim_now();
	if (!ended && now - p->looked_ns < WATCH_LEAST_NS)
		return;
	thread_batch.unsettled = heartbeat_look(p, now, 1).spans != 0;
}

void limiter_poll(int ended)
{
	struct batch *b = &thread_batch;
	CUcontext context = b->open ? b->context : current_context();
	struct compute_context *p = contexts_find(context);
	b->unsettled = 0;
	if (!p)
		return;
	batch_close(b, prim_now());
	b->unsettled = 1;
	int before = capture_relax(), entered = current_push(context);
	poll_work(p, ended);
	current_pop(entered);
	capture_restore(before);
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
