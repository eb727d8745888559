/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_steps.c: what a call executes, counted instruction by instruction. The processor's trap
 * flag raises SIGTRAP after each; the kernel clears it for the handler. The clock stands still
 * meanwhile, so that nothing is due and nothing waits because counting is slow. x86_64 only.
 */
#define _GNU_SOURCE
#include "probe.h"
#include "probe_cost.h"

#include <limits.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define TRIES 5

struct count {
	long of[COUNTS];
};
static struct count count;

static long long lost_ns, stopped_ns; /* so long it has stood still; since when it does, or 0 */

static long long real_ns(void)
{
	struct timespec t;
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Takes the place of the C library's for the library and for the fake driver. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
	long long ns = (stopped_ns ? stopped_ns : real_ns()) - lost_ns;
	(void)clock;
	count.of[CLOCKS]++;
	*t = (struct timespec){ns / 1000000000, ns % 1000000000};
	return 0;
}

/* While the clock stands still, a sleep ends at once and takes the clock to its end. */
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *t, struct timespec *rest)
{
	long long ns = (long long)t->tv_sec * 1000000000 + t->tv_nsec;
	(void)clock, (void)rest;
	if (stopped_ns) {
		stopped_ns = flags == TIMER_ABSTIME ? ns + lost_ns : stopped_ns + ns;
		return 0;
	}
	ns += flags == TIMER_ABSTIME ? lost_ns : real_ns();
	struct timespec until = {ns / 1000000000, ns % 1000000000};
	return (int)syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

#ifdef __x86_64__
#define TRAP_FLAG "0x100"
#define RED_ZONE "128" /* bytes below the stack that a function may be using */

/* Whether it begins with the prefix lock, or exchanges a register with memory, which locks, too. */
static int is_atomic(const unsigned char *at)
{
	if (at[0] == 0xf0)
		return 1;
	at += (at[0] & 0xf0) == 0x40; /* REX */
	return (at[0] == 0x86 || at[0] == 0x87) && at[1] < 0xc0;
}

static void count_next(int signal, siginfo_t *info, void *context)
{
	const ucontext_t *u = context;
	const unsigned char *at = (const unsigned char *)u->uc_mcontext.gregs[REG_RIP];
	(void)signal, (void)info;
	count.of[INSTRUCTIONS]++;
	count.of[ATOMICS] += is_atomic(at);
	count.of[SYSTEM_CALLS] += at[0] == 0x0f && at[1] == 0x05;
}

static struct count count_steps(call_by *call, int way)
{
	struct sigaction action = {.sa_sigaction = count_next, .sa_flags = SA_SIGINFO};
	NEED(!sigaction(SIGTRAP, &action, NULL));
	stopped_ns = real_ns();
	count = (struct count){{0}};
	__asm__ volatile("sub $" RED_ZONE ", %%rsp; pushfq; orl $" TRAP_FLAG ", (%%rsp); popfq; "
			 "lea " RED_ZONE "(%%rsp), %%rsp" ::: "memory", "cc");
	call(way);
	__asm__ volatile("lea -" RED_ZONE "(%%rsp), %%rsp; pushfq; andl $~" TRAP_FLAG
			 ", (%%rsp); popfq; add $" RED_ZONE ", %%rsp" ::: "memory", "cc");
	struct count counted = count;
	lost_ns += real_ns() - stopped_ns;
	stopped_ns = 0;
	return counted;
}
#else
static struct count count_steps(call_by *call, int way)
{
	call(way);
	return (struct count){{0}};
}
#endif

/* The least of some: what is done seldom is in none of them, or in all. */
static struct count count_usual(call_by *call, int way, unsigned pause_us)
{
	CUresult (*wait)(void) = (CUresult(*)(void))fakegpu_function("cuCtxSynchronize");
	struct count least = {{LONG_MAX, LONG_MAX, LONG_MAX, LONG_MAX}};
	for (int i = 0; i < TRIES; i++) {
		usleep(pause_us);
		call(way); /* what is due now and then is not when the next one asks */
		NEED(wait() == CUDA_SUCCESS);
		struct count c = count_steps(call, way);
		NEED(wait() == CUDA_SUCCESS);
		for (int k = 0; k < COUNTS; k++)
			least.of[k] = c.of[k] < least.of[k] ? c.of[k] : least.of[k];
	}
	return least;
}

void compare(call_by *call, int burst, unsigned pause_us)
{
	(void)burst;
	for (int way = 0; way < 2; way++) {
		struct count c = count_usual(call, way, pause_us);
		for (int k = 0; k < COUNTS; k++)
			printf("%ld ", c.of[k]);
	}
}
