/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.h: small CUDA programs by name, run by preload_test under the library. Exit code
 * 0 is success; otherwise the line that went wrong is printed. The limit of all of them
 * is 64 MiB on device 0.
 */
#ifndef PROBE_H
#define PROBE_H

#include <stdio.h>
#include <stdlib.h>

#include "cuda_abi.h"
#include "nvml_abi.h"

#define MIB (1ULL << 20)
#define NEED(condition)                                                           \
	do {                                                                      \
		if (!(condition)) {                                               \
			printf("    %s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                  \
		}                                                                 \
	} while (0)

CUresult cuInit(unsigned int);
CUresult cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
CUresult cuGetProcAddress(const char *, void **, int, uint64_t);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice);
CUresult cuCtxCreate_v2(CUcontext *, unsigned int, CUdevice);
CUresult cuCtxCreate_v3(CUcontext *, void *, int, unsigned int, CUdevice);
CUresult cuCtxCreate_v4(CUcontext *, void *, unsigned int, CUdevice);
CUresult cuCtxAttach(CUcontext *, unsigned int);
CUresult cuCtxDetach(CUcontext);
CUresult cuGreenCtxCreate(CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned int);
CUresult cuGreenCtxDestroy(CUgreenCtx);
CUresult cuCtxFromGreenCtx(CUcontext *, CUgreenCtx);
CUresult cuMemMapArrayAsync(CUarrayMapInfo *, unsigned int, CUstream);
CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *, unsigned int, CUstream);
CUresult cuCtxSetLimit(int, size_t);
CUresult cuLibraryLoadData(CUlibrary *, const void *, int *, void **, unsigned int, int *, void **, unsigned int);
CUresult cuDeviceGraphMemTrim(CUdevice);
CUresult cuGraphCreate(CUgraph *, unsigned int);
CUresult cuGraphDestroy(CUgraph);
CUresult cuGraphExecDestroy(CUgraphExec);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphAddMemAllocNode(struct CUgraphNode_st **, struct CUgraph_st *, struct CUgraphNode_st *const *, size_t, CUDA_MEM_ALLOC_NODE_PARAMS *);
CUresult cuGraphAddMemFreeNode(struct CUgraphNode_st **, struct CUgraph_st *, struct CUgraphNode_st *const *, size_t, CUdeviceptr);
CUresult cuLibraryGetKernel(struct CUkern_st **, CUlibrary, const char *);
CUresult cuLibraryUnload(CUlibrary);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxSynchronize(void);
CUresult cuCtxSynchronize_v2(CUcontext);
CUresult cuMemAlloc(CUdeviceptr_v1 *, unsigned int);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned int);
CUresult cuMemAllocPitch_v2(CUdeviceptr *, size_t *, size_t, size_t, unsigned int);
CUresult cuMemFree(CUdeviceptr_v1);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemGetInfo(unsigned int *, unsigned int *);
CUresult cuMemGetInfo_v2(size_t *, size_t *);
CUresult cuDeviceTotalMem(unsigned int *, CUdevice);
CUresult cuDeviceTotalMem_v2(size_t *, CUdevice);
CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, size_t);
CUresult cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *, size_t, CUstream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
CUresult cuStreamCreate(CUstream *, unsigned int);
CUresult cuStreamGetCtx(CUstream, CUcontext *);
CUresult cuMemFreeAsync(CUdeviceptr, CUstream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr, CUstream);
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *, CUdevice);
CUresult cuMemPoolCreate(CUmemoryPool *, const CUmemPoolProps *);
CUresult cuMemPoolDestroy(CUmemoryPool);
CUresult cuMemPoolTrimTo(CUmemoryPool, size_t);
CUresult cuMemPoolSetAttribute(CUmemoryPool, int, void *);
CUresult cuMemCreate(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
CUresult cuMemRelease(CUmemGenericAllocationHandle);
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *, void *);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
CUresult cuMemUnmap(CUdeviceptr, size_t);

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *, CUmemGenericAllocationHandle);
CUresult cuMemExportToShareableHandle(void *, CUmemGenericAllocationHandle, int, unsigned long long);
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *, void *, int);
CUresult cuIpcGetMemHandle(CUipcMemHandle *, CUdeviceptr);
CUresult cuIpcOpenMemHandle(CUdeviceptr *, CUipcMemHandle, unsigned int);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *, CUipcMemHandle, unsigned int);
CUresult cuIpcCloseMemHandle(CUdeviceptr);
CUresult cuImportExternalMemory(CUexternalMemory *, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *);
CUresult cuDestroyExternalMemory(CUexternalMemory);
CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuStreamSynchronize(CUstream);
CUresult cuModuleLoadData(CUmodule *, const void *);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *, unsigned int, unsigned int);
CUresult cuArrayCreate(CUarray *, const CUDA_ARRAY_DESCRIPTOR_v1 *);
CUresult cuArrayCreate_v2(CUarray *, const CUDA_ARRAY_DESCRIPTOR *);
CUresult cuArray3DCreate(CUarray *, const CUDA_ARRAY3D_DESCRIPTOR_v1 *);
CUresult cuArray3DCreate_v2(CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *);
CUresult cuArrayDestroy(CUarray);
CUresult cuMipmappedArrayCreate(CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned int);
CUresult cuMipmappedArrayDestroy(CUmipmappedArray);

/* probe_device.c: makes a device's primary context current; free bytes; an allocation to keep. */
void use_device(CUdevice device);
size_t left(void);
CUresult take(uint64_t bytes);

/* Maps the region as monitors do. */
struct vgpu_region;
struct vgpu_region *probe_region(void);

/* All probes: F(name in C, name on the command line). */
#define PROBES(F) \
	F(exact, "exact") \
	F(small, "small") \
	F(kinds, "kinds") \
	F(version_one, "version-one") \
	F(null_arguments, "null-arguments") \
	F(pools, "pools") \
	F(pool_of_own, "pool-of-own") \
	F(granule, "granule") \
	F(foreign_stream, "foreign-stream") \
	F(synchronised, "synchronised") \
	F(mappings, "mappings") \
	F(arrays, "arrays") \
	F(contexts, "contexts") \
	F(injected, "injected") \
	F(nvml, "nvml") \
	F(rtld_next, "rtld-next") \
	F(versioned_lookup, "versioned-lookup") \
	F(proc_address, "proc-address") \
	F(threads, "threads") \
	F(race, "race") \
	F(killed, "killed") \
	F(forked, "forked") \
	F(refused, "refused") \
	F(refused_sized, "refused-sized") \
	F(unlimited, "unlimited") \
	F(unnamed, "unnamed") \
	F(second_limited, "second-limited") \
	F(untouched, "untouched") \
	F(process_lists, "process-lists") \
	F(context_charged, "context-charged") \
	F(context_free, "context-free") \
	F(context_over, "context-over") \
	F(context_unknown, "context-unknown") \
	F(context_together, "context-together") \
	F(code_charged, "code-charged") \
	F(graph_memory, "graph-memory") \
	F(deepbind, "deepbind") \
	F(dlmopen, "dlmopen") \
	F(dlmopen_keys, "dlmopen-keys") \
	F(dlmopen_driver, "dlmopen-driver") \
	F(lock_holder, "lock-holder") \
	F(region_written, "region-written") \
	F(sum_written, "sum-written") \
	F(per_thread, "per-thread") \
	F(early_release, "early-release") \
	F(generation, "generation") \
	F(last_page, "last-page") \
	F(random_kill, "random-kill") \
	F(imported, "imported") \
	F(shared_handles, "shared-handles") \
	F(external, "external") \
	F(oversubscribed, "oversubscribed") \
	F(not_oversubscribed, "not-oversubscribed") \
	F(unknown_pointers, "unknown-pointers") \
	F(off_context, "off-context") \
	F(host_location, "host-location") \
	F(host_pool, "host-pool") \
	F(freed_elsewhere, "freed-elsewhere") \
	F(freed_twice, "freed-twice") \
	F(handle_threads, "handle-threads") \
	F(late_failure, "late-failure") \
	F(above_card, "above-card") \
	F(advice, "advice") \
	F(capture, "capture") \
	F(spawned, "spawned") \
	F(two_race, "two-race") \
	F(user_change, "user-change") \
	F(odd_name, "odd-name") \
	F(odd_sequence, "odd-sequence") \
	F(slots_stay, "slots-stay") \
	F(signals, "signals") \
	F(told, "told") \
	F(two_pointers, "two-pointers") \
	F(user_change_child, "user-change-child") \
	F(generation_full, "full") \
	F(details, "details") \
	F(utilisation, "utilisation") \
	F(several_devices, "several-devices") \
	F(pool_busy, "pool-busy") \
	F(pool_managed, "pool-managed") \
	F(capture_per_thread, "capture-per-thread") \
	F(sparse, "sparse") \
	F(code_pooled, "code-pooled") \
	F(code_hasty, "code-hasty") \
	F(namesake, "namesake") \
	F(namesake_later, "namesake-later") \
	F(namesake_known, "namesake-known") \
	F(code_above, "code-above") \
	F(green, "green") \
	F(green_held, "green-held") \
	F(green_settled, "green-settled") \
	F(detached, "detached") \
	F(not_taken, "not-taken") \
	F(waited_by_name, "waited-by-name") \
	F(hostile, "hostile") \
	F(exact_small, "exact-small") \
	F(exact_page, "exact-page") \
	F(exact_mixed, "exact-mixed") \
	F(exact_processes, "exact-processes") \
	F(exact_walk, "exact-walk") \
	F(exact_last, "exact-last") \
	F(exact_contexts, "exact-contexts") \
	F(exact_unpacked, "exact-unpacked") \
	F(exact_code, "exact-code") \
	F(exact_forks, "exact-forks") \
	F(newer_places, "newer-places") \
	F(checkpoint, "checkpoint") \
	F(memory_limits, "memory-limits") \
	F(stack, "stack") \
	F(forked_in_nvml, "forked-in-nvml") \
	F(race_capture_pool, "race-capture-pool") \
	F(race_capture_free, "race-capture-free") \
	F(race_capture_graph, "race-capture-graph") \
	F(race_map_release, "race-map-release") \
	F(race_retain_unmap, "race-retain-unmap") \
	F(race_reset, "race-reset") \
	F(partial_lists, "partial-lists") \
	F(partial_unmapped, "partial-unmapped") \
	F(partial_ranges, "partial-ranges") \
	F(relatives_sum, "relatives-sum") \
	F(relatives_dead_owner, "relatives-dead-owner") \
	F(relatives_dead_child, "relatives-dead-child") \
	F(relatives_deleted, "relatives-deleted") \
	F(module_data, "module-data") \
	F(module_unread, "module-unread")

#define PROBE_DECLARE(function, name) void probe_##function(void);
PROBES(PROBE_DECLARE)

/* The fake driver's clock, in nanoseconds. */
uint64_t fakegpu_now(void);
void fakegpu_sleep_until(uint64_t ns);

/* probe_launch.c and its other half, probe_interleaved.c */
CUfunction probe_kernel(const char *name);
void probe_interleaved(void);

#endif
