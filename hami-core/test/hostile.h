/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostile.h: what hostile_test.c and the processes that it attacks, probe_hostile.c, tell each
 * other. Each process writes its own place; the test reads it, also when the process is dead.
 */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <stdint.h>

#define HOSTILE_WORKERS 8

struct hostile_worker {
	uint64_t operations, refusals;
	uint64_t since_ns;   /* CLOCK_MONOTONIC of the call that is under way; 0: none */
	uint64_t longest_ns; /* the longest call so far */
	uint64_t over;       /* calls after which it had more of the card than its limit */
};

struct hostile_board {
	uint64_t limit; /* bytes */
	int32_t stop;
	int32_t unused;
	struct hostile_worker worker[HOSTILE_WORKERS];
};

#endif
