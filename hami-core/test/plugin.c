/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.c: a library that is linked to the driver, loaded in ways that lead past a preloaded one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#include "cuda_abi.h"

CUresult cuInit(unsigned int);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuModuleLoadData(CUmodule *, const void *);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);

/* Starts the driver that this library sees, and makes device 0 current. */
int plugin_start(void);
int plugin_start(void)
{
	CUcontext context;
	return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
}

int plugin_launch(void);
int plugin_launch(void)
{
	CUmodule module;
	CUfunction f;
	return cuModuleLoadData(&module, "x") || cuModuleGetFunction(&f, module, "work_1000us") ||
	       cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

/* Allocates by the function it is linked to; by_name: by one that it looks up itself. */
CUresult plugin_take(size_t bytes, int by_name);
CUresult plugin_take(size_t bytes, int by_name)
{
	CUdeviceptr at;
	CUresult (*take)(CUdeviceptr *, size_t) = cuMemAlloc_v2;
	if (by_name)
		*(void **)&take = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");
	return take(&at, bytes);
}

void *plugin_find(const char *name);
void *plugin_find(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}
