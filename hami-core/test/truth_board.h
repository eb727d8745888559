/* SPDX-License-Identifier: Apache-2.0 */
/*
 * truth_board.h: the file that the truth test and its worker processes map. It says what the
 * random program is: how many processes and threads allocate and free which kinds of memory. The
 * workers write into it how far they are, their last calls, and the first thing that went wrong.
 */
#ifndef TRUTH_BOARD_H
#define TRUTH_BOARD_H

#include <stdint.h>
#include <sys/types.h>

#define TRUTH_DEVICES 2
#define TRUTH_WORKERS 16
#define TRUTH_THREADS 32
#define TRUTH_CALLS 16 /* the last calls of a thread and of a worker that a report shows */
#define TRUTH_PAGE (2ULL << 20)
#define TRUTH_GRANULE (32ULL << 20)
#define TRUTH_CARD (1024ULL << 20)

/*
 * Kinds of calls, a bit each in `kinds` of a program. The last two are no kinds of their own: they
 * name steps of the kinds before in reports.
 */
#define TRUTH_KINDS(F) \
	F(PLAIN, "plain") F(PLAIN_V1, "plain-v1") F(MANAGED, "managed") F(PITCH, "pitch") \
	F(PITCH_V1, "pitch-v1") F(ASYNC, "async") F(FROM_POOL, "from-pool") F(POOLS, "pools") \
	F(HANDLE, "handle") F(MAPPING, "mapping") F(ARRAY, "array") F(MIPMAP, "mipmap") \
	F(SPARSE, "sparse") F(GRAPH, "graph") F(CAPTURE, "capture") F(LIMIT, "ctx-limit") \
	F(CONTEXT, "context") F(IPC, "ipc") F(SHARE, "share") F(FORK, "fork") F(ASK, "ask") \
	F(PARTIAL, "partial") F(MEET, "meet") \
	F(NODE, "node") F(LAUNCH, "launch")
enum truth_kind {
#define TRUTH_KIND(name, text) KIND_##name,
	TRUTH_KINDS(TRUTH_KIND)
#undef TRUTH_KIND
	KIND_COUNT
};

struct truth_program {
	uint64_t seed;
	int processes, threads, steps, rounds;
	int twins;     /* workers are forked from one process, which ends before they use CUDA */
	int kills;     /* workers are killed at random */
	int containers; /* they are in so many containers, which share one claim; 0: in none */
	int sizes;     /* 0: of all orders, 1: at most 1 MiB, 2: 1 to 4 MiB */
	int context_mib; /* what a context takes on the fake device */
	int sparse, unmap; /* which of the answers the driver gives: see truth_test.c */
	uint32_t kinds;
	uint64_t limit[TRUTH_DEVICES]; /* bytes; 0: none */
};

struct truth_call {
	unsigned int order; /* among its worker's, from 1; 0: none */
	char text[112];
};

/* One worker's part. */
struct truth_worker {
	pid_t pid;    /* as the test sees it */
	pid_t inside; /* as the worker sees it */
	int arrived; /* rounds after which it has freed everything; -1: not started */
	int gone;    /* 1: it has ended, 2: and was waited for */
	int killed;
	unsigned int calls;
	struct truth_call call[TRUTH_THREADS][TRUTH_CALLS];
};

/* The memory of a killed process may be refused to others for so long. */
#define TRUTH_AFTER_A_DEATH_MS 100

/* Memory that a worker offers to the others. */
struct truth_offer {
	int ready; /* 1: an IPC handle, 2: a descriptor; 0: nothing */
	int device, fd;
	pid_t pid;
	char handle[64];
};

struct truth_board {
	struct truth_program program;
	struct truth_worker worker[TRUTH_WORKERS];
	struct truth_offer offer[TRUTH_WORKERS];
	int go; /* the last round that may be begun; -1: none */
	/*
	 * Between rounds the worker `checker` takes the whole limit and gives it back: it is asked
	 * by a higher `check` and answers with the same number in `checked`.
	 */
	int checker, check, checked;
	int stop;    /* something went wrong: end at once */
	int64_t killed_ms; /* when a worker was killed last, CLOCK_MONOTONIC */
	uint64_t calls, refusals, late, judged;
	uint64_t falsely, errors;
	int failed; /* who has written `failure` */
	char failure[512];
};

static inline uint64_t truth_pages(uint64_t bytes)
{
	return bytes > 1ULL << 60 ? bytes : (bytes + TRUTH_PAGE - 1) / TRUTH_PAGE * TRUTH_PAGE;
}

static inline uint64_t truth_granules(uint64_t bytes)
{
	return bytes > 1ULL << 60 ? bytes
				  : (bytes + TRUTH_GRANULE - 1) / TRUTH_GRANULE * TRUTH_GRANULE;
}

/* What a device can have at all. */
static inline uint64_t truth_most(const struct truth_program *p, int device)
{
	return p->limit[device] ? p->limit[device] : TRUTH_CARD;
}

/* splitmix64 */
static inline uint64_t truth_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static inline uint64_t truth_below(uint64_t *state, uint64_t n)
{
	return truth_random(state) % n;
}

#endif
