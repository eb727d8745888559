/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_truth.c: a worker of the truth test: rounds of random calls by its threads, each followed
 * by a quiet moment when all is freed and one worker looks whether the whole limit is to be had.
 */
#define _GNU_SOURCE
#include "probe_truth.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROOM 512

struct truth_board *board;
int self;
struct calls via, bare;
CUcontext primary[TRUTH_DEVICES];

static struct thread threads[TRUTH_THREADS];
static pthread_barrier_t all; /* this worker's threads */
static struct {
	pthread_mutex_t mutex;
	int count;
	struct piece piece[ROOM];
} held = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static int action; /* what thread 0 has been told to do next: CHECK, GO or STOP */
enum { CHECK, GO, STOP };

const char *const kind_names[] = {
#define TRUTH_NAME(name, text) text,
	TRUTH_KINDS(TRUTH_NAME)
#undef TRUTH_NAME
};

void note_call(struct thread *t, const char *verb, const struct piece *p, CUresult r)
{
	struct truth_worker *w = &board->worker[self];
	unsigned int order = __atomic_add_fetch(&w->calls, 1, __ATOMIC_RELAXED);
	struct truth_call *c = &w->call[t->index][t->calls++ % TRUTH_CALLS];
	c->order = order;
	snprintf(c->text, sizeof c->text, "thread %d: %s %s/%d %llu bytes, device %d: %d", t->index,
		 verb, kind_names[p->kind], p->variant, (unsigned long long)p->bytes, p->device, r);
}

void fail(const char *format, ...)
{
	va_list args;
	int nobody = 0;
	if (__atomic_compare_exchange_n(&board->failed, &nobody, self + 1, 0, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE)) {
		va_start(args, format);
		int n = snprintf(board->failure, sizeof board->failure, "worker %d: ", self);
		vsnprintf(board->failure + n, sizeof board->failure - (size_t)n, format, args);
		va_end(args);
	}
	__atomic_store_n(&board->stop, 1, __ATOMIC_RELEASE);
}

void use_device(struct thread *t, int device)
{
	if (t->current == primary[device])
		return;
	if (via.cuCtxSetCurrent(primary[device]))
		fail("the context of device %d cannot be made current", device);
	t->current = primary[device];
}

int keep(const struct piece *p)
{
	pthread_mutex_lock(&held.mutex);
	int ok = held.count < ROOM;
	if (ok)
		held.piece[held.count++] = *p;
	pthread_mutex_unlock(&held.mutex);
	return ok;
}

int take_any(struct thread *t, struct piece *p)
{
	pthread_mutex_lock(&held.mutex);
	int i = held.count ? (int)truth_below(&t->random, (uint64_t)held.count) : -1;
	int ok = i >= 0 && (held.piece[i].owner < 0 || held.piece[i].owner == t->index);
	if (ok) {
		*p = held.piece[i];
		held.piece[i] = held.piece[--held.count];
	}
	pthread_mutex_unlock(&held.mutex);
	return ok;
}

static void allocate(struct thread *t, enum truth_kind kind)
{
	struct piece p;
	int device = (int)truth_below(&t->random, TRUTH_DEVICES);
	/*
	 * A pool's memory is the pool's device's, whatever is current, unless the default stream
	 * says where.
	 */
	int current = kind == KIND_FROM_POOL ? (int)truth_below(&t->random, TRUTH_DEVICES) : device;
	use_device(t, current);
	draw(t, &p, kind, device);
	int several = kind == KIND_MAPPING || kind == KIND_SPARSE || kind == KIND_GRAPH ||
		      kind == KIND_CAPTURE || kind == KIND_CONTEXT;
	if (several && p.bytes > 64 * MIB)
		return;
	CUresult r = several ? build(t, &p) : attempt(t, &p);
	if (r != CUDA_SUCCESS) {
		t->shrinking = truth_below(&t->random, 4) != 0;
		return;
	}
	if (kind == KIND_GRAPH || kind == KIND_CAPTURE)
		return; /* nothing is left of it but what is reserved */
	if (!keep(&p))
		dispose(t, &p);
}

static void step(struct thread *t)
{
	enum truth_kind kind = (enum truth_kind)truth_below(&t->random, KIND_NODE);
	struct piece p;
	if (truth_below(&t->random, 24) == 0)
		t->shrinking = !t->shrinking;
	if (truth_below(&t->random, 100) < (t->shrinking ? 75u : 30u)) {
		if (take_any(t, &p))
			dispose(t, &p);
		return;
	}
	for (int i = 0; i < 64 && !(board->program.kinds & 1u << kind); i++)
		kind = (enum truth_kind)truth_below(&t->random, KIND_NODE);
	if (!(board->program.kinds & 1u << kind) || kind == KIND_LIMIT)
		return; /* limits are set in contexts of their own */
	int rare = kind == KIND_FORK || kind == KIND_CONTEXT || kind == KIND_GRAPH ||
		   kind == KIND_CAPTURE || kind == KIND_PARTIAL;
	if (rare && truth_below(&t->random, kind == KIND_FORK ? 20 : 3))
		return;
	if (kind == KIND_POOLS || kind == KIND_IPC || kind == KIND_SHARE || kind == KIND_FORK ||
	    kind == KIND_ASK || kind == KIND_PARTIAL || kind == KIND_MEET)
		do_other(t, kind);
	else
		allocate(t, kind);
}

/* Streams and pools of a thread, anew in each round. */
static void equip(struct thread *t)
{
	t->current = NULL;
	for (int i = 0; i < TRUTH_DEVICES; i++) {
		CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
					.location = {CU_MEM_LOCATION_TYPE_DEVICE, i}};
		use_device(t, i);
		if (via.cuStreamCreate(&t->stream[i], 0) ||
		    via.cuMemPoolCreate(&t->pool[i], &props))
			fail("no stream or no pool");
		if (t->index == 0)
			meet_equip(i);
	}
}

/* Frees all that this worker has; thread 0 does it for all. */
static void free_everything(struct thread *t)
{
	struct piece p;
	CUmemoryPool pool;
	for (int n = held.count; n > 0; n--) {
		p = held.piece[truth_below(&t->random, (uint64_t)held.count)];
		for (int i = 0; i < held.count; i++)
			if (!memcmp(&held.piece[i], &p, sizeof p)) {
				held.piece[i] = held.piece[--held.count];
				break;
			}
		dispose(t, &p);
	}
	flight_without_ask();
	for (int i = 0; i < TRUTH_DEVICES; i++) {
		use_device(t, i);
		meet_end(i);
		via.cuCtxSynchronize();
		for (int k = 0; k < board->program.threads; k++) {
			via.cuMemPoolTrimTo(threads[k].pool[i], 0);
			via.cuMemPoolDestroy(threads[k].pool[i]);
			via.cuStreamDestroy_v2(threads[k].stream[i]);
		}
		if (!via.cuDeviceGetDefaultMemPool(&pool, i))
			via.cuMemPoolTrimTo(pool, 0);
		via.cuDeviceGraphMemTrim(i);
	}
	flight_over();
}

/* Waits until the board says what is next. */
static int next_action(int round)
{
	for (;; usleep(200)) {
		if (__atomic_load_n(&board->stop, __ATOMIC_ACQUIRE))
			return STOP;
		if (__atomic_load_n(&board->check, __ATOMIC_ACQUIRE) >
			    __atomic_load_n(&board->checked, __ATOMIC_ACQUIRE) &&
		    board->checker == self && board->check == round)
			return CHECK;
		if (__atomic_load_n(&board->go, __ATOMIC_ACQUIRE) >= round)
			return GO;
	}
}

/* All threads of the worker learn what thread 0 does. */
static int agree(const struct thread *t, int round)
{
	pthread_barrier_wait(&all);
	if (t->index == 0)
		action = next_action(round);
	pthread_barrier_wait(&all);
	return action;
}

static void *life(void *argument)
{
	struct thread *t = argument;
	int what = agree(t, 0);
	for (int round = 0; what == GO && round < board->program.rounds; round++) {
		equip(t);
		pthread_barrier_wait(&all);
		for (int i = 0;
		     i < board->program.steps && !__atomic_load_n(&board->stop, __ATOMIC_RELAXED);
		     i++)
			step(t);
		pthread_barrier_wait(&all);
		if (t->index == 0) {
			free_everything(t);
			__atomic_store_n(&board->worker[self].arrived, round + 1, __ATOMIC_RELEASE);
		}
		while ((what = agree(t, round + 1)) == CHECK) {
			check_everything(t, &all);
			if (t->index == 0)
				__atomic_store_n(&board->checked, round + 1, __ATOMIC_RELEASE);
		}
	}
	return NULL;
}

static void look_up(void)
{
#define TRUTH_LOOK_UP(name, args)                                \
	via.name = (CUresult(*) args)dlsym(RTLD_DEFAULT, #name); \
	bare.name = (CUresult(*) args)fakegpu_function(#name);   \
	if (!via.name || !bare.name)                             \
		fail("%s is not to be found", #name);
	TRUTH_CALLS_USED(TRUTH_LOOK_UP)
#undef TRUTH_LOOK_UP
}

static void start(void)
{
	const struct truth_program *p = &board->program;
	look_up();
	board->worker[self].inside = getpid();
	if (!p->containers)
		board->worker[self].pid = getpid();
	if (via.cuInit(0))
		fail("cuInit failed");
	for (int i = 0; i < TRUTH_DEVICES; i++)
		if (via.cuDevicePrimaryCtxRetain(&primary[i], i))
			fail("no context of device %d", i);
	pthread_barrier_init(&all, NULL, (unsigned int)p->threads);
	for (int i = 0; i < p->threads; i++) {
		threads[i] = (struct thread){.index = i,
					     .random = p->seed ^ ((uint64_t)self << 32) ^
						       ((uint64_t)i << 40)};
		truth_random(&threads[i].random);
	}
	__atomic_store_n(&board->worker[self].arrived, 0, __ATOMIC_RELEASE);
}

/*
 * Forks all workers of the program, before any of them uses CUDA. 1 in each of them, 0 in the
 * parent.
 */
static int become_one(void)
{
	for (self = 0; self < board->program.processes; self++)
		if (fork() == 0)
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	int fd = argc == 3 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;
	board = fd < 0 ? MAP_FAILED
		       : mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (board == MAP_FAILED)
		return fprintf(stderr, "usage: probe_truth <board> <index>\n"), 2;
	close(fd);
	self = atoi(argv[2]);
	if (board->program.twins && !become_one())
		return 0; /* whoever started us adopts them */
	alarm(300);
	start();
	for (int i = 1; i < board->program.threads; i++)
		pthread_create(&threads[i].id, NULL, life, &threads[i]);
	life(&threads[0]);
	for (int i = 1; i < board->program.threads; i++)
		pthread_join(threads[i].id, NULL);
	__atomic_store_n(&board->worker[self].gone, 1, __ATOMIC_RELEASE);
	return 0;
}
