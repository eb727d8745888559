/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.h: what the region says about compute: the monitor's two words, and the time of each
 * device, which all processes of the container draw on. Atomic operations only: no lock.
 */
#ifndef BUDGET_H
#define BUDGET_H

#include <stdint.h>

#include "hamicore_abi.h"
#include "shm/word.h"

/* The region's recent_kernel; NULL without a region. */
const int32_t *budget_monitor_word(void);
/* Devices that the region names. */
int budget_device_count(void);

/*
 * Sleeps while the monitor's gate is closed (somebody of higher priority uses the device); then
 * stamps the region.
 */
void budget_wait_for_monitor(void);

/*
 * Whether the share holds now: a monitor may suspend it while nobody else wants the device, where
 * the container does not borrow by itself.
 */
int budget_is_enforced(void);

struct vgpu_pace *budget_of(int device);

struct vgpu_turn *budget_turn(int device);

/*
 * Every tenant can write there: what is read is taken for what it can be at most.
 */
struct vgpu_common *budget_common(int device);

#define BUDGET_LONGEST_NS 10000000000ULL /* no single kernel is believed to take longer */

/* A time as it was written there, at most so long. */
static inline uint64_t budget_clamp_duration(const uint64_t *ns, uint64_t most)
{
	uint64_t time = word_get(ns);
	return time < most ? time : most;
}

/*
 * A moment as it was written there, at most `now`: another process may have looked at the clock
 * after us. One that comes much later never was: 0.
 */
static inline uint64_t budget_clamp_moment(const uint64_t *then, uint64_t now)
{
	uint64_t moment = word_get(then);
	return moment <= now ? moment : moment - now < BUDGET_LONGEST_NS / 10 ? now : 0;
}

/*
 * Charges work that ran at some time between two moments of the host's clock, `till` being now. A
 * container cannot have had more of a device than time has passed: what its processes were charged
 * for already is taken off. The rest, at most `ns`.
 */
uint64_t budget_charge(int device, uint64_t since_ns, uint64_t till_ns, uint64_t ns);

/* Credits the time since the last refill, whoever comes first. The balance then. */
int64_t budget_refill(int device, unsigned percent, uint64_t now_ns);

/* Takes from a device's balance if it is not negative; 0 when it is: somebody else was faster. */
int budget_claim(int device, int64_t ns);

/* What launches took lately of which nothing was known, as somebody wrote it there. */
uint32_t *budget_guess_word(int device);

/* Adds to a device's balance; negative: takes. */
void budget_add(int device, int64_t ns);

#endif
