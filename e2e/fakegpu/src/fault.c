/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.c: calls of NVML that fail or take long because a test wants it: ordered for all
 * processes with `fakegpuctl fail` and `slow`, or for one with FAKEGPU_FAIL=<function>:<n>:<code>.
 */
#define _GNU_SOURCE
#include "mig.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
	int read;
	char function[72];
	long nth, code, seen;
} own;

/* This process's own order. */
static nvmlReturn_t from_environment(const char *function)
{
	nvmlReturn_t r = NVML_SUCCESS;
	pthread_mutex_lock(&mutex);
	if (!own.read) {
		const char *env = getenv("FAKEGPU_FAIL");
		own.read = 1;
		if (env && sscanf(env, "%71[^:]:%ld:%ld", own.function, &own.nth, &own.code) != 3)
			own.nth = 0;
	}
	if (own.nth > 0 && !strcmp(own.function, function) && ++own.seen == own.nth)
		r = (nvmlReturn_t)own.code;
	pthread_mutex_unlock(&mutex);
	return r;
}

static nvmlReturn_t take(struct fg_fault *f)
{
	if (f->always)
		return f->code;
	if (f->after && --f->after == 0)
		return f->code;
	return NVML_SUCCESS;
}

nvmlReturn_t fg_fault(const char *function)
{
	uint32_t delay = 0;
	nvmlReturn_t r = from_environment(function);
	for (int i = 0; i < FG_MAX_FAULTS; i++) {
		struct fg_fault *f = &fg_state()->fault[i];
		if (!__atomic_load_n(&f->function[0], __ATOMIC_ACQUIRE))
			continue;
		fg_lock();
		if (!strcmp(f->function, function)) {
			delay += f->delay_ms;
			if (r == NVML_SUCCESS)
				r = take(f);
		}
		fg_unlock();
	}
	if (delay)
		nanosleep(&(struct timespec){.tv_sec = delay / 1000, .tv_nsec = (long)(delay % 1000) * 1000000}, NULL);
	return r;
}
