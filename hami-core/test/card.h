/* SPDX-License-Identifier: Apache-2.0 */
/*
 * card.h: what the fake card itself says it has given out, whatever a library says. For programs on
 * the machine of machine.h, where CUDA's device 0 is the second line of the topology.
 */
#ifndef CARD_H
#define CARD_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "probe.h"
#include "state.h"

static const struct fg_state *truth(void)
{
	static const struct fg_state *state;
	char path[256];
	if (state)
		return state;
	snprintf(path, sizeof path, "%s/state", getenv("FAKEGPU_DIR"));
	int fd = open(path, O_RDONLY);
	NEED(fd >= 0);
	state = mmap(NULL, sizeof *state, PROT_READ, MAP_SHARED, fd, 0);
	NEED(state != MAP_FAILED);
	return state; /* closing the descriptor would drop this process's lock on its slot */
}

/*
 * Bytes that all processes use of a CUDA device now; and the most that they have used at any
 * instant.
 */
static inline uint64_t truth_used(int device)
{
	uint64_t bytes = 0;
	for (int i = 0; i < FG_MAX_PROCESSES; i++)
		bytes += truth()->process[i].in_use ? truth()->process[i].used[1 - device] : 0;
	return bytes;
}

static inline uint64_t truth_high(int device)
{
	return truth()->device[1 - device].used_high;
}

/* A random number below n (xorshift64). */
static inline uint64_t draw(uint64_t *seed, uint64_t n)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed % n;
}

#endif
