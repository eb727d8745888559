/* SPDX-License-Identifier: Apache-2.0 */
/* probe_stress.c: many processes at once, and deaths at any instruction. PROBE_ROUNDS rounds. */
#define _GNU_SOURCE
#include "probe.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RACERS 16

struct contest {
	pthread_barrier_t line;
	int won[4096]; /* by round */
};

static int rounds(void)
{
	int n = atoi(getenv("PROBE_ROUNDS"));
	NEED(n > 0 && n <= 4096);
	return n;
}

/* What a round is about: every kind of memory that is taken by the page. */
struct piece {
	int kind;
	CUdeviceptr at;
	CUmemGenericAllocationHandle handle;
	CUarray array;
};

static CUresult piece_take(struct piece *p, int kind, uint64_t bytes)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUDA_ARRAY_DESCRIPTOR shape = {1 << 17, bytes >> 17, CU_AD_FORMAT_UNSIGNED_INT8, 1};
	p->kind = kind;
	switch (kind) {
	case 0: return cuMemAlloc_v2(&p->at, bytes);
	case 1: return cuMemAllocManaged(&p->at, bytes, 1);
	case 2: return cuMemCreate(&p->handle, bytes, &prop, 0);
	default: return cuArrayCreate_v2(&p->array, &shape);
	}
}

static CUresult piece_give(const struct piece *p)
{
	return p->kind < 2 ? cuMemFree_v2(p->at) : p->kind == 2 ? cuMemRelease(p->handle) : cuArrayDestroy(p->array);
}

static void contend(struct contest *c, int n)
{
	struct piece p;
	alarm(60); /* nobody waits for ever when another has failed */
	use_device(0);
	for (int i = 0; i < n; i++) {
		pthread_barrier_wait(&c->line);
		int won = piece_take(&p, i % 4, 2 * MIB) == CUDA_SUCCESS;
		if (won)
			__atomic_add_fetch(&c->won[i], 1, __ATOMIC_SEQ_CST);
		pthread_barrier_wait(&c->line); /* keep it until all have tried */
		if (won)
			NEED(piece_give(&p) == CUDA_SUCCESS);
	}
	exit(0);
}

void probe_last_page(void)
{
	int n = rounds(), status;
	pthread_barrierattr_t a;
	struct contest *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(c != MAP_FAILED && !pthread_barrierattr_init(&a) && !pthread_barrierattr_setpshared(&a, PTHREAD_PROCESS_SHARED));
	NEED(!pthread_barrier_init(&c->line, &a, RACERS + 1));
	for (int i = 0; i < RACERS; i++)
		if (fork() == 0)
			contend(c, n);
	use_device(0);
	NEED(take(62 * MIB) == CUDA_SUCCESS);
	for (int i = 0; i < n; i++) {
		pthread_barrier_wait(&c->line);
		pthread_barrier_wait(&c->line);
		NEED(c->won[i] == 1);
	}
	while (wait(&status) > 0)
		NEED(status == 0);
	NEED(left() == 2 * MIB);
	printf("    %d rounds of %d processes: the last page went to one of them each time\n", n, RACERS);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Takes and gives memory of all kinds until it is killed. */
static void churn(unsigned seed)
{
	struct piece held[8];
	int n = 0;
	use_device(0);
	for (;;) {
		int kind = rand_r(&seed) % 4;
		if (n < 8 && piece_take(&held[n], kind, (uint64_t)(rand_r(&seed) % 8 + 1) * 2 * MIB) == CUDA_SUCCESS)
			n++;
		else if (n)
			NEED(piece_give(&held[--n]) == CUDA_SUCCESS);
	}
}

/* How long a process has waited for a processor, in seconds; 0 where nobody counts that. */
static double queued(pid_t pid)
{
	char path[64];
	unsigned long long waited = 0;
	snprintf(path, sizeof path, "/proc/%d/schedstat", (int)pid);
	FILE *f = fopen(path, "r");
	if (f && fscanf(f, "%*u %llu", &waited) != 1)
		waited = 0;
	if (f)
		fclose(f);
	return (double)waited / 1e9;
}

/* A new process takes everything. Returns how long that took, without waiting for a processor. */
static double take_all(void)
{
	int status;
	siginfo_t ended;
	double start = now(), before = queued(getpid());
	pid_t pid = fork();
	if (pid == 0) {
		use_device(0);
		NEED(take(64 * MIB) == CUDA_SUCCESS && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
		exit(0);
	}
	NEED(!waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT));
	double took = now() - start - queued(pid) - (queued(getpid()) - before);
	NEED(waitpid(pid, &status, 0) == pid && status == 0);
	return took;
}

#define PATIENCE 0.1

/*
 * Kills one at a random moment of its life, start-up included; another must get everything within
 * 100 ms of the death. Where the machine is so busy that it takes longer with nobody killed, too,
 * that is not counted.
 */
static double kill_one(unsigned *seed)
{
	int status;
	pid_t pid = fork();
	if (pid == 0)
		churn(rand_r(seed));
	usleep((useconds_t)(rand_r(seed) % 6000));
	NEED(!kill(pid, SIGKILL) && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
	double took = take_all();
	for (int i = 0; i < 20 && took > PATIENCE; i++)
		if (take_all() > PATIENCE / 3)
			return 0;
	return took;
}

void probe_random_kill(void)
{
	unsigned seed = 1;
	double worst = 0;
	int n = rounds();
	for (int i = 0; i < n; i++) {
		double took = kill_one(&seed);
		worst = took > worst ? took : worst;
	}
	printf("    %d deaths: the whole limit was another's after %.1f ms at worst\n", n, worst * 1e3);
	NEED(worst < PATIENCE);
}
