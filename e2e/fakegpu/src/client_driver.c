/* SPDX-License-Identifier: Apache-2.0 */
/* client_driver.c: the three ways a program reaches the driver. */
#define _GNU_SOURCE
#include "client.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

/* member, name for the linker, base name and version for cuGetProcAddress */
#define FUNCTIONS(F)                                                   \
	F(Init, cuInit, "cuInit", 2000)                                \
	F(DeviceGetCount, cuDeviceGetCount, "cuDeviceGetCount", 2000)  \
	F(DeviceGetUuid, cuDeviceGetUuid, "cuDeviceGetUuid", 9020)     \
	F(DeviceGetName, cuDeviceGetName, "cuDeviceGetName", 2000)     \
	F(DeviceTotalMem, cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020) \
	F(DeviceGetAttribute, cuDeviceGetAttribute, "cuDeviceGetAttribute", 2000) \
	F(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000) \
	F(CtxSetCurrent, cuCtxSetCurrent, "cuCtxSetCurrent", 4000)     \
	F(CtxSynchronize, cuCtxSynchronize, "cuCtxSynchronize", 2000)  \
	F(MemGetInfo, cuMemGetInfo_v2, "cuMemGetInfo", 3020)           \
	F(MemAlloc, cuMemAlloc_v2, "cuMemAlloc", 3020)                 \
	F(MemAllocManaged, cuMemAllocManaged, "cuMemAllocManaged", 6000) \
	F(MemAllocPitch, cuMemAllocPitch_v2, "cuMemAllocPitch", 3020)  \
	F(MemAllocAsync, cuMemAllocAsync, "cuMemAllocAsync", 11020)    \
	F(MemFree, cuMemFree_v2, "cuMemFree", 3020)                    \
	F(MemFreeAsync, cuMemFreeAsync, "cuMemFreeAsync", 11020)       \
	F(StreamSynchronize, cuStreamSynchronize, "cuStreamSynchronize", 2000) \
	F(ModuleLoadData, cuModuleLoadData, "cuModuleLoadData", 2000)  \
	F(ModuleGetFunction, cuModuleGetFunction, "cuModuleGetFunction", 2000) \
	F(LaunchKernel, cuLaunchKernel, "cuLaunchKernel", 4000)        \
	F(GetErrorName, cuGetErrorName, "cuGetErrorName", 6000)

/* Prototypes of the linked functions follow from the table's member types. */
#define PROTOTYPE(member, symbol, base, version) extern __typeof__(*((struct driver *)0)->member) symbol;
FUNCTIONS(PROTOTYPE)

static const char *by_link(struct driver *d)
{
#define LINK(member, symbol, base, version) d->member = symbol;
	FUNCTIONS(LINK)
	return NULL;
}

static const char *by_dlsym(struct driver *d)
{
	void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return "dlopen libcuda.so.1 failed";
#define LOOKUP(member, symbol, base, version)                         \
	*(void **)&d->member = dlsym(handle, #symbol);                \
	if (!d->member)                                               \
		return "dlsym found no " #symbol;
	FUNCTIONS(LOOKUP)
	return NULL;
}

/* As the CUDA runtime does: one dlsym for cuGetProcAddress_v2, all else through it. */
static const char *by_getproc(struct driver *d)
{
	CUresult (*get)(const char *, void **, int, uint64_t, int *);
	void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return "dlopen libcuda.so.1 failed";
	*(void **)&get = dlsym(handle, "cuGetProcAddress_v2");
	if (!get)
		return "dlsym found no cuGetProcAddress_v2";
	int status;
#define ASK(member, symbol, base, version)                                            \
	if (get(base, (void **)&d->member, version, CU_GET_PROC_ADDRESS_DEFAULT, &status) || !d->member) \
		return "cuGetProcAddress found no " base;
	FUNCTIONS(ASK)
	return NULL;
}

const char *driver_reach(struct driver *d, const char *via)
{
	if (!strcmp(via, "link"))
		return by_link(d);
	if (!strcmp(via, "dlsym"))
		return by_dlsym(d);
	if (!strcmp(via, "getproc"))
		return by_getproc(d);
	return "want link, dlsym or getproc";
}
