/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_cost.h: what probe_cost.c hands to a measure: probe_times.c or probe_steps.c, each a
 * program of its own.
 */
#ifndef PROBE_COST_H
#define PROBE_COST_H

/* What probe_steps.c counts, and cost_test.c reads. */
enum { INSTRUCTIONS, ATOMICS, CLOCKS, SYSTEM_CALLS, COUNTS };

/* The fake driver's own function. */
void *fakegpu_function(const char *symbol);

/* A call by way 0, straight to the fake driver, or 1, through whatever library is in front. */
typedef void call_by(int way);

/*
 * Prints what the call takes by way 0 and by way 1: nanoseconds, timed in bursts of so many calls,
 * or what it executes, counted after a pause.
 */
void compare(call_by *call, int burst, unsigned pause_us);

#endif
