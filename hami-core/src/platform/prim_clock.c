/* SPDX-License-Identifier: Apache-2.0 */
/* prim_clock.c: the floor to the clocks. */
#define _GNU_SOURCE
#include "platform/prim.h"

#include <time.h>

unsigned long long prim_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (unsigned long long)t.tv_sec * 1000000000ULL + (unsigned long long)t.tv_nsec;
}

void prim_sleep_until(unsigned long long ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000ULL),
			     .tv_nsec = (long)(ns % 1000000000ULL)};
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

long long prim_date(void)
{
	return (long long)time(NULL);
}
