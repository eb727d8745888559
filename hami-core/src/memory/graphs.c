/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A launch takes at most what its graph needs, and makes graphs together have at most what all that
 * have run need: the smaller of both is reserved before. What the driver has reserved and no graph
 * uses it takes again first.
 *
 * Lock order: graphs.mutex before the region's. Launches, uploads and trims are made without it:
 * they may wait.
 */
#include "memory/graphs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "driver/resolve.h"
#include "memory/account.h"
#include "settings/components.h"
#include "settings/settings.h"
#include "shm/region.h"

#define BUCKETS 256

/* A graph that is ready to run. */
struct graph_exec {
	CUgraphExec handle;
	struct graph_need need;
	int calls;   /* launches and uploads under way */
	int has_run; /* so that it may have memory */
	struct graph_exec *next;
};

/* Memory of one device that graphs have, in bytes. */
struct device_graph_memory {
	CUdevice ordinal;
	uint64_t charged;  /* never less than is reserved, but for launches that nobody saw */
	uint64_t reserved; /* by the driver, when it was asked last */
	uint64_t flying;   /* needed by launches under way */
	uint64_t all;      /* needed by all graphs that have run or are about to, each for itself */
	uint64_t left;     /* the most that destroyed ones can have left allocated */
	uint64_t events;   /* runs begun, and trims begun and ended */
	CUgraphExec last;  /* which ran last, and alone: it finds its memory again */
};

static struct {
	pthread_mutex_t mutex;
	struct device_graph_memory device[HAMI_DEVICES]; /* by index in the limits */
	struct graph_exec *bucket[BUCKETS];
} graphs = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static uint64_t query_attribute(CUdevice ordinal, int attribute)
{
	uint64_t bytes = 0;
	fn_cuDeviceGetGraphMemAttribute get = ORIGINAL(cuDeviceGetGraphMemAttribute);
	return get && get(ordinal, attribute, &bytes) == CUDA_SUCCESS ? bytes : 0;
}

static struct graph_exec **find_exec(CUgraphExec handle)
{
	uint64_t hash = (uintptr_t)handle * 0x9e3779b97f4a7c15ULL;
	struct graph_exec **at = &graphs.bucket[hash >> 56];
	while (*at && (*at)->handle != handle)
		at = &(*at)->next;
	return at;
}

/*
 * Books what is reserved now (needs the mutex). 1 when it was more than was charged. Launches under
 * way can make it at most what is used with what they need.
 */
static int settle_device(int device)
{
	struct device_graph_memory *h = &graphs.device[device];
	uint64_t now = query_attribute(h->ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
	uint64_t used = 0, before = h->charged;
	if (h->flying)
		used = query_attribute(h->ordinal, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
	uint64_t want = used + h->flying > now ? used + h->flying : now;
	if (h->left > now)
		h->left = now;
	if (now < h->reserved)
		h->last = NULL; /* trimmed */
	h->reserved = now;
	if (now > before)
		region_force(device, now - before);
	else if (want < before)
		region_release(device, before - want);
	if (now > before || want < before)
		h->charged = now > before ? now : want;
	return now > before;
}

CUresult graph_trim(CUresult (*trim)(CUdevice), CUdevice ordinal)
{
	int device = settings_gate() == GATE_LIMITED ? settings_device(ordinal) : -1;
	if (device < 0)
		return trim(ordinal);
	struct device_graph_memory *h = &graphs.device[device];
	pthread_mutex_lock(&graphs.mutex);
	h->events++;
	pthread_mutex_unlock(&graphs.mutex);
	CUresult r = trim(ordinal);
	pthread_mutex_lock(&graphs.mutex);
	h->events++;
	h->last = NULL;
	h->ordinal = ordinal;
	settle_device(device);
	pthread_mutex_unlock(&graphs.mutex);
	return r;
}

void graphs_charge(CUdevice ordinal)
{
	int device = settings_gate() == GATE_LIMITED ? settings_device(ordinal) : -1;
	if (device < 0)
		return;
	fn_cuDeviceGraphMemTrim trim = ORIGINAL(cuDeviceGraphMemTrim);
	uint64_t limit = settings_memory_limit(device);
	pthread_mutex_lock(&graphs.mutex);
	graphs.device[device].ordinal = ordinal;
	int more = settle_device(device);
	pthread_mutex_unlock(&graphs.mutex);
	if (more && limit && region_used(device) > limit && trim)
		graph_trim(trim, ordinal);
}

void graphs_refresh(int device)
{
	CUdevice current;
	fn_cuCtxGetDevice get = ORIGINAL(cuCtxGetDevice);
	if (get && get(&current) == CUDA_SUCCESS && settings_device(current) == device)
		graphs_charge(current); /* a graph that nobody saw made may have run there */
	pthread_mutex_lock(&graphs.mutex);
	if (graphs.device[device].charged)
		settle_device(device);
	pthread_mutex_unlock(&graphs.mutex);
}

/* Adds to what all graphs need that have run (needs the mutex). */
static void count_need(const struct graph_need *need, int sign)
{
	for (int i = 0; i < HAMI_DEVICES; i++)
		graphs.device[i].all += sign > 0 ? need->bytes[i] : -need->bytes[i];
}

/* A number that the driver gives again is of a new graph. */
void graph_exec_made(CUgraphExec exec, const struct graph_need *need, int uploaded)
{
	graph_exec_settle(graph_exec_take(exec), CUDA_SUCCESS);
	struct graph_exec *e = malloc(sizeof *e);
	if (!e)
		return; /* it is charged when it has run */
	*e = (struct graph_exec){.handle = exec, .need = *need, .has_run = uploaded};
	pthread_mutex_lock(&graphs.mutex);
	struct graph_exec **at = find_exec(exec);
	e->next = *at;
	*at = e;
	if (uploaded)
		count_need(need, 1);
	pthread_mutex_unlock(&graphs.mutex);
}

/*
 * What it needed before it may still have. It is told before the driver's call, because another
 * thread may launch the graph as soon as that has changed it.
 */
void graph_exec_update(CUgraphExec exec, const struct graph_need *need)
{
	pthread_mutex_lock(&graphs.mutex);
	struct graph_exec *e = *find_exec(exec);
	for (int i = 0; e && i < HAMI_DEVICES; i++) {
		struct device_graph_memory *h = &graphs.device[i];
		uint64_t old = e->need.bytes[i];
		uint64_t more = need->bytes[i] > old ? need->bytes[i] - old : 0;
		h->all += more && (e->has_run || e->calls) ? more : 0;
		h->last = more && h->last == exec ? NULL : h->last;
		e->need.bytes[i] += more;
		e->need.ordinal[i] = more ? need->ordinal[i] : e->need.ordinal[i];
		e->need.any |= more > 0;
	}
	pthread_mutex_unlock(&graphs.mutex);
}

/*
 * The driver may give the number to another graph at once, which finds none of this one's memory.
 */
struct graph_exec *graph_exec_take(CUgraphExec exec)
{
	pthread_mutex_lock(&graphs.mutex);
	struct graph_exec **at = find_exec(exec), *e = *at;
	if (e)
		*at = e->next;
	for (int i = 0; i < HAMI_DEVICES; i++)
		if (graphs.device[i].last == exec)
			graphs.device[i].last = NULL;
	pthread_mutex_unlock(&graphs.mutex);
	return e;
}

void graph_exec_settle(struct graph_exec *e, CUresult result)
{
	if (!e)
		return;
	pthread_mutex_lock(&graphs.mutex);
	if (result != CUDA_SUCCESS) {
		struct graph_exec **at = find_exec(e->handle);
		e->next = *at;
		*at = e;
		e = NULL;
	} else if (e->has_run || e->calls) {
		count_need(&e->need, -1);
		for (int i = 0; i < HAMI_DEVICES; i++)
			graphs.device[i].left += e->need.bytes[i];
	}
	pthread_mutex_unlock(&graphs.mutex);
	free(e);
}

/*
 * The most that graphs will have of a device when this one has got its memory, too (needs the
 * mutex).
 */
static uint64_t most_after_run(struct device_graph_memory *h, const struct graph_run *run,
			       uint64_t need)
{
	if (run->exec && run->exec == h->last && !h->flying)
		return h->reserved; /* nobody else has come to it since */
	uint64_t used = query_attribute(h->ordinal, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
	h->left = h->left < used ? h->left : used;
	uint64_t now = used + h->flying + need, all = h->all + h->left;
	return now < all ? now : all;
}

/* Reserves for one device (needs the mutex). 0, or -1. */
static int reserve_on_device(struct graph_run *run, int device)
{
	struct device_graph_memory *h = &graphs.device[device];
	h->ordinal = run->need.ordinal[device];
	settle_device(device);
	uint64_t want = most_after_run(h, run, run->need.bytes[device]);
	uint64_t more = want > h->charged ? want - h->charged : 0;
	if (more && region_reserve(device, more, settings_memory_limit(device)))
		return -1;
	h->charged += more;
	h->flying += run->need.bytes[device];
	run->serial[device] = h->flying > run->need.bytes[device] ? 0 : h->events + 1;
	h->events++;
	return 0;
}

/* Reserves for all devices of a run; the first that there is no room on, or -1. */
static int reserve_run(struct graph_run *run)
{
	int refused = -1;
	pthread_mutex_lock(&graphs.mutex);
	for (int i = 0; i < HAMI_DEVICES && refused < 0; i++)
		if (run->need.bytes[i] && reserve_on_device(run, i))
			refused = i;
	for (int i = 0; i < refused; i++)
		graphs.device[i].flying -= run->need.bytes[i];
	pthread_mutex_unlock(&graphs.mutex);
	return refused;
}

/* Gives back what no graph uses any more, and looks at everything else again. */
static void trim_and_refresh(CUdevice ordinal, int device)
{
	fn_cuDeviceGraphMemTrim trim = ORIGINAL(cuDeviceGraphMemTrim);
	if (trim)
		graph_trim(trim, ordinal);
	components_refresh(device);
}

/* Counts a graph that is about to run among those that have, or no longer (needs the mutex). */
static void note_run_begin(struct graph_run *run)
{
	struct graph_exec *e = run->exec ? *find_exec(run->exec) : NULL;
	if (!e || (!e->has_run && !e->calls))
		count_need(&run->need, 1);
	if (e)
		e->calls++;
}

static void note_run_end(struct graph_run *run, int has_run)
{
	struct graph_exec *e = run->exec ? *find_exec(run->exec) : NULL;
	if (e) {
		e->calls--;
		e->has_run |= has_run;
	}
	if (run->exec ? e && !e->has_run && !e->calls : 1)
		count_need(&run->need, -1);
}

/* Reserves for a run that has memory. CUDA_SUCCESS, or refused. */
static CUresult begin_run(struct graph_run *run)
{
	pthread_mutex_lock(&graphs.mutex);
	note_run_begin(run);
	pthread_mutex_unlock(&graphs.mutex);
	int refused = reserve_run(run);
	if (refused >= 0) {
		trim_and_refresh(run->need.ordinal[refused], refused);
		refused = reserve_run(run);
	}
	if (refused >= 0) {
		pthread_mutex_lock(&graphs.mutex);
		note_run_end(run, 0);
		pthread_mutex_unlock(&graphs.mutex);
		return account_refuse(refused, run->need.bytes[refused]);
	}
	for (int i = 0; i < HAMI_DEVICES; i++)
		if (run->need.bytes[i])
			region_add_in_flight(i, 1);
	return CUDA_SUCCESS;
}

CUresult graph_run_begin(struct graph_run *run, CUgraphExec exec, CUstream stream)
{
	run->exec = exec;
	run->stream = stream;
	run->unknown = run->recorded = run->need.any = 0;
	if (settings_gate() != GATE_LIMITED)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&graphs.mutex);
	struct graph_exec *e = *find_exec(exec);
	run->unknown = !e;
	if (e && e->need.any)
		run->need = e->need;
	pthread_mutex_unlock(&graphs.mutex);
	if (!run->need.any)
		return CUDA_SUCCESS;
	if (capture_hold(stream)) {
		run->need.any = 0;
		run->recorded = 1;
		return CUDA_SUCCESS;
	}
	capture_watch(&run->before);
	return begin_run(run);
}

CUresult graph_upload_begin(struct graph_run *run, const struct graph_need *need)
{
	*run = (struct graph_run){.need = *need};
	return need->any ? begin_run(run) : CUDA_SUCCESS;
}

/* Ends a run on one device (needs the mutex); `ran`: and was not recorded meanwhile. */
static void settle_run(const struct graph_run *run, int device, int ran)
{
	struct device_graph_memory *h = &graphs.device[device];
	h->flying -= run->need.bytes[device];
	settle_device(device);
	/* Otherwise nobody knows in what order the driver was called. */
	h->last = ran && run->serial[device] == h->events ? run->exec : NULL;
	region_add_in_flight(device, -1);
}

CUresult graph_run_end(struct graph_run *run, CUresult result)
{
	CUdevice current;
	fn_cuCtxGetDevice get = ORIGINAL(cuCtxGetDevice);
	if (run->recorded)
		capture_release();
	if (run->unknown && result == CUDA_SUCCESS && get && get(&current) == CUDA_SUCCESS)
		graphs_charge(current);
	if (!run->need.any)
		return result;
	int ran = !run->exec || !capture_may_have_recorded(&run->before, run->stream);
	pthread_mutex_lock(&graphs.mutex);
	for (int i = 0; i < HAMI_DEVICES; i++)
		if (run->need.bytes[i])
			settle_run(run, i, ran);
	note_run_end(run, result == CUDA_SUCCESS);
	pthread_mutex_unlock(&graphs.mutex);
	return result;
}

void graphs_after_fork(void)
{
	memset(&graphs, 0, sizeof graphs);
	pthread_mutex_init(&graphs.mutex, NULL); /* another thread of the parent may have held it */
}
