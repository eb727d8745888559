/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_init.c: cuInit, the list of devices, CUDA_VISIBLE_DEVICES, fork. */
#define _GNU_SOURCE
#include "cuda_exports.h"
#include "cuda_fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fg_fake fake = {.mutex = PTHREAD_MUTEX_INITIALIZER, .status = CUDA_ERROR_NOT_INITIALIZED, .slot = -1};

CUresult fg_ready(void)
{
	return fake.forked ? CUDA_ERROR_NOT_INITIALIZED : fake.status;
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
	if (strncmp(word, "GPU-", 4))
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
		memcpy(fake.gpu, all, sizeof *all * (size_t)n);
		fake.count = n;
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

/* The real driver looks itself up with dlsym; a wrapper that answers with a hook breaks it. */
static int self_lookup_fails(void)
{
	if (!getenv("FAKEGPU_SELF_LOOKUP"))
		return 0;
	void *h = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void *want = NULL;
	for (size_t i = 0; i < fg_entry_count; i++)
		if (!strcmp(fg_entries[i].symbol, "cuMemAlloc_v2"))
			want = fg_entries[i].address;
	return h && dlsym(h, "cuMemAlloc_v2") != want;
}

static void child_after_fork(void)
{
	if (fake.status != CUDA_SUCCESS)
		return;
	fake.forked = 1;
	pthread_mutex_init(&fake.mutex, NULL);
	fg_after_fork();
}

static CUresult start(void)
{
	char error[768];
	if (fg_topology_read(fg_dir(), &fake.topology, error, sizeof error)) {
		fprintf(stderr, "fake libcuda: %s\n", error);
		return CUDA_ERROR_NO_DEVICE;
	}
	struct fg_gpu *all[FG_MAX_DEVICES];
	int n = 0;
	for (int i = 0; i < fake.topology.count; i++)
		if (fg_gpu_visible(&fake.topology.gpu[i]))
			all[n++] = &fake.topology.gpu[i];
	qsort(all, (size_t)n, sizeof *all, by_pci);
	apply_visible(all, n);
	if (fake.count == 0)
		return CUDA_ERROR_NO_DEVICE;
	if (fg_state_open(fg_dir(), error, sizeof error)) {
		fprintf(stderr, "fake libcuda: %s\n", error);
		return CUDA_ERROR_UNKNOWN;
	}
	fg_lock();
	fake.slot = fg_claim();
	fg_unlock();
	if (fake.slot < 0 || self_lookup_fails())
		return CUDA_ERROR_UNKNOWN;
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
