/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_init.c: cuInit, the list of devices, CUDA_VISIBLE_DEVICES, fork. */
#define _GNU_SOURCE
#include "clock.h"
#include "cuda_exports.h"
#include "cuda_fake.h"
#include "cuda_mps.h"
#include "mig.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fg_fake fake = {.mutex = PTHREAD_MUTEX_INITIALIZER, .status = CUDA_ERROR_NOT_INITIALIZED, .slot = -1};

CUresult fg_ready(void)
{
	if (fake.forked || fake.status != CUDA_SUCCESS)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (fg_state()->process[fake.slot].checkpoint != CU_PROCESS_STATE_RUNNING)
		fg_await_restore();
	return fg_mps_alive();
}

struct fg_gpu *fg_gpu(CUdevice device)
{
	return device >= 0 && device < fake.count ? fake.gpu[device] : NULL;
}

static int by_pci(const void *a, const void *b)
{
	const struct fg_gpu *x = *(struct fg_gpu *const *)a, *y = *(struct fg_gpu *const *)b;
	if (x->domain != y->domain)
		return x->domain < y->domain ? -1 : 1;
	if (x->bus != y->bus)
		return x->bus < y->bus ? -1 : 1;
	return x->slot < y->slot ? -1 : x->slot > y->slot;
}

/* The device that one entry of CUDA_VISIBLE_DEVICES names: an index, or (a prefix of) a UUID. */
static struct fg_gpu *named(struct fg_gpu **all, int n, const char *word)
{
	char *end;
	long i = strtol(word, &end, 10);
	if (end != word && *end == 0)
		return i >= 0 && i < n ? all[i] : NULL;
	if (strncmp(word, "GPU-", 4) && strncmp(word, "MIG-", 4))
		return NULL;
	struct fg_gpu *hit = NULL;
	for (int k = 0; k < n; k++)
		if (!strncasecmp(all[k]->uuid, word, strlen(word))) {
			if (hit)
				return NULL; /* ambiguous */
			hit = all[k];
		}
	return hit;
}

/* As the real driver: entries up to the first invalid one count; a device named twice ends the list with none. */
static void apply_visible(struct fg_gpu **all, int n)
{
	const char *env = getenv("CUDA_VISIBLE_DEVICES");
	if (!env) {
		fake.count = n < FG_MAX_DEVICES ? n : FG_MAX_DEVICES;
		memcpy(fake.gpu, all, sizeof *all * (size_t)fake.count);
		return;
	}
	char text[1024];
	snprintf(text, sizeof text, "%s", env);
	char *cursor = text, *word;
	while ((word = strsep(&cursor, ",")) != NULL && fake.count < FG_MAX_DEVICES) {
		word += strspn(word, " ");
		struct fg_gpu *g = named(all, n, word);
		if (!g)
			break;
		for (int i = 0; i < fake.count; i++)
			if (fake.gpu[i] == g) {
				fake.count = 0;
				return;
			}
		fake.gpu[fake.count++] = g;
	}
}

/*
 * The real driver looks itself up with dlsym; a wrapper that answers with a hook breaks it.
 * The name of the first function that is somebody else's, or NULL.
 */
static const char *not_ours(void)
{
	void *h = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	for (size_t i = 0; h && i < fg_entry_count; i++) {
		const struct fg_entry *e = &fg_entries[i];
		if (e->since <= fg_generation && dlsym(h, e->symbol) != e->address)
			return e->symbol;
	}
	return NULL;
}

static int self_lookup_fails(void)
{
	const char *symbol = getenv("FAKEGPU_SELF_LOOKUP") ? not_ours() : NULL;
	if (symbol)
		fprintf(stderr, "fake libcuda: looking itself up, it found somebody else's %s\n", symbol);
	return symbol != NULL;
}

/* Drivers since 570 do it while they are loaded, before anybody else's start. */
__attribute__((constructor)) static void at_load(void)
{
	if (getenv("FAKEGPU_SELF_LOOKUP"))
		(void)not_ours();
}

static void child_after_fork(void)
{
	if (fake.status != CUDA_SUCCESS)
		return;
	fake.forked = 1;
	pthread_mutex_init(&fake.mutex, NULL);
	fg_after_fork();
	fg_mps_after_fork();
}

/*
 * Puts partitions in the place of devices in MIG mode; such a device itself is none of CUDA's,
 * and where there is any partition there is nothing else. Under fg_lock. How many are left.
 */
static int partition(struct fg_gpu **all, int n)
{
	static struct fg_gpu partitions[FG_SEEN_INSTANCES];
	int whole = 0, parts = 0;
	for (int i = 0; i < n; i++) {
		unsigned current, pending;
		fg_mig_mode(all[i], &current, &pending);
		parts += fg_mig_visible(all[i], partitions + parts, FG_SEEN_INSTANCES - parts);
		if (!current)
			all[whole++] = all[i];
	}
	for (int i = 0; i < parts; i++)
		all[i] = &partitions[i];
	return parts ? parts : whole;
}

/* Takes a slot and opens the devices that are left after CUDA_VISIBLE_DEVICES; of partitions, one. */
static CUresult open_devices(struct fg_gpu **all, int n)
{
	fg_lock();
	apply_visible(all, partition(all, n));
	if (fake.count && fake.gpu[0]->gi_serial)
		fake.count = 1;
	CUresult r = fake.count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
	if (r == CUDA_SUCCESS && (fake.slot = fg_claim()) < 0)
		r = CUDA_ERROR_UNKNOWN;
	struct fg_process *p = r == CUDA_SUCCESS ? &fg_state()->process[fake.slot] : NULL;
	for (int i = 0; p && i < fake.count; i++)
		p->open |= 1ULL << fake.gpu[i]->minor;
	if (p) {
		p->gi_serial = fake.gpu[0]->gi_serial;
		p->ci_serial = fake.gpu[0]->ci_serial;
	}
	fg_unlock();
	return r;
}

static CUresult start(void)
{
	char error[768];
	if (fg_topology_read(fg_dir(), &fake.topology, error, sizeof error)) {
		fprintf(stderr, "fake libcuda: %s\n", error);
		return CUDA_ERROR_NO_DEVICE;
	}
	struct fg_gpu *all[FG_SEEN_INSTANCES];
	int n = 0;
	for (int i = 0; i < fake.topology.count; i++)
		if (fg_gpu_visible(&fake.topology.gpu[i]))
			all[n++] = &fake.topology.gpu[i];
	qsort(all, (size_t)n, sizeof *all, by_pci);
	if (n == 0)
		return CUDA_ERROR_NO_DEVICE;
	CUresult attached = fg_mps_attach(all, &n);
	if (attached != CUDA_SUCCESS)
		return attached;
	if (fg_state_open(fg_dir(), error, sizeof error)) {
		fprintf(stderr, "fake libcuda: %s\n", error);
		return CUDA_ERROR_UNKNOWN;
	}
	CUresult r = open_devices(all, n);
	if (r == CUDA_SUCCESS && self_lookup_fails())
		r = CUDA_ERROR_UNKNOWN;
	if (r != CUDA_SUCCESS)
		return r;
	if (fg_clock_open(fg_dir(), error, sizeof error)) {
		fprintf(stderr, "fake libcuda: %s\n", error);
		return CUDA_ERROR_UNKNOWN;
	}
	for (int i = 0; i < fake.count; i++) {
		fake.primary[i] = (struct CUctx_st){.ordinal = i, .primary = 1};
		fake.stream0[i] = (struct CUstream_st){.ordinal = i};
	}
	pthread_atfork(NULL, NULL, child_after_fork);
	return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags)
{
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (fake.forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_lock(&fake.mutex);
	if (fake.status != CUDA_SUCCESS) {
		fake.count = 0;
		fake.status = start();
	}
	CUresult r = fake.status;
	if (r != CUDA_SUCCESS)
		fake.status = CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_unlock(&fake.mutex);
	return r;
}
