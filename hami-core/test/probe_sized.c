/* SPDX-License-Identifier: Apache-2.0 */
/* probe_sized.c: chooses a probe of probe_sized.h by name; what they have in common. */
#define _GNU_SOURCE
#include "probe_sized.h"

#include <dlfcn.h>
#include <string.h>

CUresult cuCtxGetCurrent(CUcontext *);

uint64_t limit_of(int device)
{
	const char *text = getenv(device ? "PROBE_LIMIT_1" : "PROBE_LIMIT_0");
	return text ? strtoull(text, NULL, 10) * MIB : 0;
}

size_t left_on(int device)
{
	CUcontext before;
	NEED(cuCtxGetCurrent(&before) == CUDA_SUCCESS);
	use_device(device);
	size_t bytes = left();
	NEED(cuCtxSetCurrent(before) == CUDA_SUCCESS);
	return bytes;
}

CUresult take_on(int device, uint64_t bytes)
{
	CUcontext before;
	NEED(cuCtxGetCurrent(&before) == CUDA_SUCCESS);
	use_device(device);
	CUresult r = take(bytes);
	NEED(cuCtxSetCurrent(before) == CUDA_SUCCESS);
	return r;
}

void *bare(const char *symbol)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	void *(*function)(const char *);
	*(void **)&function = library ? dlsym(library, "fakegpu_function") : NULL;
	NEED(function && function(symbol));
	return function(symbol);
}

static const struct {
	const char *name;
	void (*run)(void);
} probes[] = {
#define SIZED_ENTRY(name) {#name, probe_##name},
	SIZED(SIZED_ENTRY)
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof probes / sizeof *probes; i++)
		if (!strcmp(argv[1], probes[i].name))
			return probes[i].run(), 0;
	fprintf(stderr, "probe_sized: unknown probe\n");
	return 2;
}
