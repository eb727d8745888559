/* SPDX-License-Identifier: Apache-2.0 */
/* client_clock.c: the time the client measures by: the fake driver's, which can be a clock of its own, or the machine's. */
#define _GNU_SOURCE
#include "client.h"

#include <dlfcn.h>
#include <stdint.h>
#include <time.h>

double client_now(void)
{
	struct timespec t;
	uint64_t (*fake)(void);
	*(void **)&fake = dlsym(RTLD_DEFAULT, "fakegpu_now");
	if (fake)
		return (double)fake() / 1e9;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void client_rest(double seconds)
{
	struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
	void (*fake)(uint64_t);
	*(void **)&fake = dlsym(RTLD_DEFAULT, "fakegpu_sleep_until");
	if (fake)
		return fake((uint64_t)((client_now() + seconds) * 1e9));
	while (nanosleep(&t, &t))
		;
}
