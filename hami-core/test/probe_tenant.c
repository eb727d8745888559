/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_tenant.c: a program that keeps the fake device busy on the clock of its own, for tenants.h.
 *
 *	probe_tenant <us>[/<pause>][x<sizes>] <every> <seconds> [<from> <till>]...
 *	probe_tenant [~]<us>,[~]<us>...[/<pause>] <every> <seconds>
 *	probe_tenant lie 0 <seconds>
 *	probe_tenant lease <place> <seconds>
 *	probe_tenant watch <places> <seconds>
 *
 * It launches kernels of so many microseconds, synchronises after every so many launches (0:
 * never), and pauses then. With sizes, kernels of so many sizes take turns, which take the same
 * time. A list is launched in turn: the times with a ~ are each a kernel of its own, all others are
 * one kernel of one size, whose parameter says how long it takes. It works from `from` to `till`
 * (milliseconds; all the time without), waits otherwise.
 * A liar does nothing and writes into the file PROBE_DEMAND that it is first in line. One that
 * leases has, after half a second, a lease on the file of the tenant at that place whenever it can,
 * and does not give it back. One that watches prints every 20 ms when it is and what the device has
 * done for each place: nanoseconds all.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"
#include "hamicore_abi.h"

CUresult cuInit(unsigned);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuModuleLoadData(CUmodule *, const void *);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			unsigned, CUstream, void **, void **);
CUresult cuStreamSynchronize(CUstream);
uint64_t fakegpu_now(void);
void fakegpu_sleep_until(uint64_t ns);
uint64_t fakegpu_had(int minor, int place);

#define SAMPLE_NS 20000000ULL
#define NEED(what) \
	do { \
		if (!(what)) \
			exit((fprintf(stderr, "not true: %s\n", #what), 1)); \
	} while (0)

static uint64_t begin;

static void watch(int places, uint64_t till)
{
	for (uint64_t now; (now = fakegpu_now()) <= till; fakegpu_sleep_until(now + SAMPLE_NS)) {
		printf("%llu", (unsigned long long)(now - begin));
		for (int i = 0; i < places; i++)
			printf(" %llu", (unsigned long long)fakegpu_had(0, i));
		printf("\n");
	}
}

#define KERNELS 32

static struct kernel {
	CUfunction f;
	unsigned us;
} kernels[KERNELS];
static int count;
static uint64_t pause_ns;
static unsigned sizes = 1;

static void work(long every, uint64_t till)
{
	for (long n = 1; fakegpu_now() < till; n++) {
		struct kernel *k = &kernels[n % count];
		NEED(cuLaunchKernel(k->f, 264 + (unsigned)n % sizes, 1, 1, 256, 1, 1, 0, NULL,
				    (void *[]){&k->us}, NULL) == CUDA_SUCCESS);
		if (every && n % every == 0) {
			NEED(cuStreamSynchronize(NULL) == CUDA_SUCCESS);
			fakegpu_sleep_until(fakegpu_now() + pause_ns);
		}
	}
}

static void lie(uint64_t till)
{
	for (uint64_t now; (now = fakegpu_now()) < till; fakegpu_sleep_until(now + 1000000)) {
		const struct vgpu_demand claim = {now, 0, 1, now + 90000000};
		FILE *f = fopen(getenv("PROBE_DEMAND"), "r+");
		NEED(f && fwrite(&claim, sizeof claim, 1, f) == 1);
		fclose(f);
	}
}

static void lease(const char *place, uint64_t till)
{
	char path[256];
	char *name = strrchr(getenv("PROBE_DEMAND"), '/');
	snprintf(path, sizeof path, "%.*s/%s.demand", (int)(name - getenv("PROBE_DEMAND")),
		 getenv("PROBE_DEMAND"), place);
	int fd = open(path, O_RDONLY);
	NEED(fd >= 0 && signal(SIGIO, SIG_IGN) != SIG_ERR);
	fakegpu_sleep_until(begin + 500000000);
	for (uint64_t now; (now = fakegpu_now()) < till; fakegpu_sleep_until(now + 1000000))
		if (fcntl(fd, F_GETLEASE) != F_RDLCK)
			(void)fcntl(fd, F_SETLEASE, F_RDLCK);
}

static CUfunction kernel(CUmodule module, const char *name)
{
	CUfunction f;
	NEED(cuModuleGetFunction(&f, module, name) == CUDA_SUCCESS);
	return f;
}

/* The kernels of a list, or the one. */
static void load(const char *list)
{
	char name[32];
	CUmodule module;
	NEED(cuModuleLoadData(&module, "x") == CUDA_SUCCESS);
	CUfunction told = strchr(list, ',') ? kernel(module, "work_us") : NULL;
	for (const char *at = list; at && count < KERNELS; at = strchr(at, ',')) {
		at += *at == ',';
		int own = *at == '~' || !told;
		at += *at == '~';
		struct kernel *k = &kernels[count++];
		k->us = (unsigned)strtoul(at, NULL, 10);
		snprintf(name, sizeof name, "work_%uus", k->us);
		k->f = own ? kernel(module, name) : told;
	}
}

int main(int argc, char **argv)
{
	CUcontext context;
	NEED(argc >= 4);
	NEED(cuInit(0) == CUDA_SUCCESS);
	begin = fakegpu_now();
	uint64_t end = begin + strtoull(argv[3], NULL, 10) * 1000000000ULL;
	if (!strcmp(argv[1], "watch"))
		return watch(atoi(argv[2]), end), 0;
	NEED(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
	     cuCtxSetCurrent(context) == CUDA_SUCCESS);
	if (!strcmp(argv[1], "lie"))
		return lie(end), 0;
	if (!strcmp(argv[1], "lease"))
		return lease(argv[2], end), 0;
	char *pause = strchr(argv[1], '/'), *many = strchr(argv[1], 'x');
	sizes = many ? (unsigned)strtoul(many + 1, NULL, 10) : 1;
	pause_ns = pause ? strtoull(pause + 1, NULL, 10) * 1000 : 0;
	load(argv[1]);
	for (int i = 4; i + 1 < argc; i += 2) {
		fakegpu_sleep_until(begin + strtoull(argv[i], NULL, 10) * 1000000);
		work(atol(argv[2]), begin + strtoull(argv[i + 1], NULL, 10) * 1000000);
	}
	if (argc == 4)
		work(atol(argv[2]), end);
	fakegpu_sleep_until(end);
	return 0;
}
