/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtual_clock.c: in place of src/prim_clock.c in a library for tests. Its clock is the fake
 * driver's, which can be one of its own: see e2e/fakegpu/src/clock.h.
 */
#include "platform/prim.h"

#define LATE_NS 60000 /* a sleep ends late, by about as much on Linux */

static void *fake(const char *name)
{
	static const char *const prefixes[] = {"libcuda.so", NULL};
	return prim_symbol(prefixes, name);
}

unsigned long long prim_now(void)
{
	static unsigned long (*now)(void);
	if (!now)
		now = (unsigned long (*)(void))fake("fakegpu_now");
	return now();
}

void prim_sleep_until(unsigned long long ns)
{
	static void (*sleep)(unsigned long);
	if (!sleep)
		sleep = (void (*)(unsigned long))fake("fakegpu_sleep_until");
	sleep(ns + LATE_NS);
}

long long prim_date(void)
{
	return (long long)(prim_now() / 1000000000ULL);
}
