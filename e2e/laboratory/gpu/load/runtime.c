/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime.c: the same empty kernel through the CUDA runtime, when the machine has one. It is loaded by
 * path, so nothing here is built against it; kernels come in by cudaLibraryLoadData, since CUDA 12.8.
 */
#define _GNU_SOURCE
#include "load.h"

#include <dlfcn.h>
#include <stdio.h>

#define BURST 500
#define MAX_BURSTS 20000

struct dim3 {
	unsigned x, y, z;
};

static struct {
	int (*set_device)(int);
	int (*load)(void **library, const void *code, int *jit, void **jit_values, unsigned jit_count, int *options,
		    void **values, unsigned count);
	int (*kernel)(void **kernel, void *library, const char *name);
	int (*launch)(const void *kernel, struct dim3 grid, struct dim3 block, void **params, size_t shared, void *stream);
	int (*synchronise)(void *stream);
} runtime;
static void *empty;
static double times[MAX_BURSTS];

static int find(void *library, void **function, const char *name)
{
	*function = dlsym(library, name);
	if (!*function)
		printf("= error what=this-runtime-has-no-%s\n", name);
	return *function ? 0 : -1;
}

/* runtime PATH: loads libcudart */
void load_runtime(struct load *l, int count, char **words)
{
	void *library = NULL, *h = count > 1 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	(void)l;
	if (!h) {
		printf("= error what=dlopen-failed\n");
		return;
	}
	if (find(h, (void **)&runtime.set_device, "cudaSetDevice") || find(h, (void **)&runtime.load, "cudaLibraryLoadData") ||
	    find(h, (void **)&runtime.kernel, "cudaLibraryGetKernel") || find(h, (void **)&runtime.launch, "cudaLaunchKernel") ||
	    find(h, (void **)&runtime.synchronise, "cudaStreamSynchronize"))
		return;
	if (load_failed("cudaSetDevice", runtime.set_device(0)) ||
	    load_failed("cudaLibraryLoadData", runtime.load(&library, load_ptx, NULL, NULL, 0, NULL, NULL, 0)) ||
	    load_failed("cudaLibraryGetKernel", runtime.kernel(&empty, library, "work_1us")))
		return;
	printf("= loaded=1\n");
}

/* runtime-launch N: empty kernels */
void load_runtime_launch(struct load *l, int count, char **words)
{
	int bursts = (int)load_number(count, words, 1, 100000) / BURST;
	(void)l;
	if (!empty) {
		printf("= error what=no-runtime-is-loaded\n");
		return;
	}
	bursts = bursts < 1 ? 1 : bursts > MAX_BURSTS ? MAX_BURSTS : bursts;
	for (int b = 0; b < bursts; b++) {
		double start = load_seconds();
		for (int i = 0; i < BURST; i++)
			if (load_failed("cudaLaunchKernel",
					runtime.launch(empty, (struct dim3){1, 1, 1}, (struct dim3){32, 1, 1}, NULL, 0, NULL)))
				return;
		times[b] = (load_seconds() - start) * 1e9 / BURST;
		if (load_failed("cudaStreamSynchronize", runtime.synchronise(NULL)))
			return;
	}
	load_sort(times, bursts);
	printf("= calls=%d median_ns=%.1f low_ns=%.1f high_ns=%.1f\n", bursts * BURST, load_quantile(times, bursts, 0.5),
	       load_quantile(times, bursts, 0.1), load_quantile(times, bursts, 0.9));
}
