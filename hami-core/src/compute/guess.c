/* SPDX-License-Identifier: Apache-2.0 */
#include "compute/guess.h"

#include <string.h>

#include "compute/budget.h"
#include "model/pace.h"
#include "shm/word.h"

#define MOST_NS 1000000000ULL   /* everybody can write into the region */
#define DOUBT_NS 100000000ULL   /* what was never measured is doubled up to this */

static struct {
	uint64_t ns; /* 0: the region's is not known yet */
	int64_t in_flight;
} self[HAMI_DEVICES];

static uint64_t between(uint64_t ns, uint64_t least, uint64_t most)
{
	return ns < least ? least : ns > most ? most : ns;
}

uint64_t guess_of(int device)
{
	uint64_t ns = word_get(&self[device].ns);
	if (ns)
		return ns;
	ns = between(word_get32(budget_guess_word(device)), PACE_NEW_NS, MOST_NS);
	word_set(&self[device].ns, ns);
	return ns;
}

/* What a process finds that comes when this one has ended. */
static void publish(int device, int in_flight)
{
	uint64_t ns = guess_of(device);
	if (in_flight)
		ns = between(2 * ns, ns, ns > DOUBT_NS ? ns : DOUBT_NS);
	word_set32(budget_guess_word(device), (uint32_t)ns);
}

void guess_begin(int device)
{
	__atomic_add_fetch(&self[device].in_flight, 1, __ATOMIC_RELAXED);
	publish(device, 1);
}

void guess_end(int device, uint64_t ns)
{
	if (ns)
		word_set(&self[device].ns, between((guess_of(device) * 3 + ns) / 4, PACE_NEW_NS,
						MOST_NS));
	publish(device, __atomic_sub_fetch(&self[device].in_flight, 1, __ATOMIC_RELAXED) > 0);
}

void guess_after_fork(void)
{
	memset(self, 0, sizeof self);
}
