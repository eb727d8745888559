/* SPDX-License-Identifier: Apache-2.0 */
/* probe_generation.c: a driver of version PROBE_CUDA has its functions and no others. */
#define _GNU_SOURCE
#include "probe.h"

#include <dlfcn.h>
#include <string.h>

static const struct {
	const char *base, *symbol;
	int since;
} hooked[] = {
	{"cuMemAlloc", "cuMemAlloc", 2000},
	{"cuMemAlloc", "cuMemAlloc_v2", 3020},
	{"cuMemCreate", "cuMemCreate", 10020},
	{"cuMemAllocAsync", "cuMemAllocAsync", 11020},
	{"cuMemAllocAsync", "cuMemAllocAsync_ptsz", 11020},
	{"cuGetProcAddress", "cuGetProcAddress", 11030},
	{"cuCtxCreate", "cuCtxCreate_v2", 3020},
	{"cuCtxCreate", "cuCtxCreate_v3", 11040},
	{"cuDeviceGraphMemTrim", "cuDeviceGraphMemTrim", 11040},
	{"cuGetProcAddress", "cuGetProcAddress_v2", 12000},
	{"cuLibraryLoadData", "cuLibraryLoadData", 12000},
	{"cuCtxCreate", "cuCtxCreate_v4", 12050},
	{"cuCtxSynchronize", "cuCtxSynchronize", 2000},
	{"cuCtxSynchronize", "cuCtxSynchronize_v2", 13000},
};
#define HOOKED (int)(sizeof hooked / sizeof *hooked)

/* The youngest symbol of a base that this driver has, without per-thread twins. */
static const char *youngest(const char *base, int driver)
{
	const char *best = NULL;
	for (int i = 0; i < HOOKED; i++)
		if (!strcmp(hooked[i].base, base) && hooked[i].since <= driver && !strstr(hooked[i].symbol, "_pt"))
			best = hooked[i].symbol; /* the list is sorted by version within a base */
	return best;
}

void probe_generation(void)
{
	int driver = atoi(getenv("PROBE_CUDA"));
	void *h = dlopen("libcuda.so.1", RTLD_NOW), *at;
	CUresult (*get)(const char *, void **, int, uint64_t);
	use_device(0);
	for (int i = 0; i < HOOKED; i++) {
		(void)dlerror();
		NEED((dlsym(h, hooked[i].symbol) != NULL) == (hooked[i].since <= driver));
		NEED((dlerror() == NULL) == (hooked[i].since <= driver));
	}
	*(void **)&get = dlsym(h, "cuGetProcAddress");
	/* a program of the newest toolkit asks an old driver */
	for (int i = 0; get && i < HOOKED; i++) {
		const char *want = youngest(hooked[i].base, driver);
		CUresult r = get(hooked[i].base, &at, 13000, CU_GET_PROC_ADDRESS_DEFAULT);
		NEED(want ? r == CUDA_SUCCESS && at == dlsym(h, want) && at == dlsym(RTLD_DEFAULT, want) : r == CUDA_ERROR_NOT_FOUND);
	}
	CUdeviceptr address;
	/* what the driver has not got cannot be called past us, nor does it crash */
	if (driver < 11020)
		NEED(cuMemAllocAsync(&address, MIB, NULL) == CUDA_ERROR_NOT_SUPPORTED);
	NEED(take(64 * MIB) == CUDA_SUCCESS && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
}
