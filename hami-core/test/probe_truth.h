/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_truth.h: the parts of a worker of the truth test. A call is drawn as a `struct piece` and
 * made through the library. When it is refused, it is made once more past the library, in a dry
 * run, which tells what it would have taken.
 */
#ifndef PROBE_TRUTH_H
#define PROBE_TRUTH_H

#include <pthread.h>

#include "cuda_abi.h"
#include "truth_board.h"

#define MIB (1ULL << 20)

/* All functions that workers call: one table goes through the library, one past it. */
#define TRUTH_CALLS_USED(F) \
	F(cuInit, (unsigned int)) \
	F(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice)) \
	F(cuDevicePrimaryCtxRelease_v2, (CUdevice)) \
	F(cuDevicePrimaryCtxReset_v2, (CUdevice)) \
	F(cuCtxCreate_v2, (CUcontext *, unsigned int, CUdevice)) \
	F(cuCtxDestroy_v2, (CUcontext)) \
	F(cuCtxSetCurrent, (CUcontext)) \
	F(cuCtxPopCurrent_v2, (CUcontext *)) \
	F(cuCtxSynchronize, (void)) \
	F(cuCtxSetLimit, (int, size_t)) \
	F(cuDeviceGetAttribute, (int *, int, CUdevice)) \
	F(cuMemGetInfo_v2, (size_t *, size_t *)) \
	F(cuMemAlloc_v2, (CUdeviceptr *, size_t)) \
	F(cuMemAlloc, (CUdeviceptr_v1 *, unsigned int)) \
	F(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned int)) \
	F(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned int)) \
	F(cuMemAllocPitch, (CUdeviceptr_v1 *, unsigned int *, unsigned int, unsigned int, \
	  unsigned int)) \
	F(cuMemFree_v2, (CUdeviceptr)) \
	F(cuMemFree, (CUdeviceptr_v1)) \
	F(cuStreamCreate, (CUstream *, unsigned int)) \
	F(cuStreamDestroy_v2, (CUstream)) \
	F(cuStreamSynchronize, (CUstream)) \
	F(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream)) \
	F(cuMemAllocAsync_ptsz, (CUdeviceptr *, size_t, CUstream)) \
	F(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUmemoryPool, CUstream)) \
	F(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr *, size_t, CUmemoryPool, CUstream)) \
	F(cuMemFreeAsync, (CUdeviceptr, CUstream)) \
	F(cuMemFreeAsync_ptsz, (CUdeviceptr, CUstream)) \
	F(cuDeviceGetDefaultMemPool, (CUmemoryPool *, CUdevice)) \
	F(cuMemPoolCreate, (CUmemoryPool *, const CUmemPoolProps *)) \
	F(cuMemPoolDestroy, (CUmemoryPool)) \
	F(cuMemPoolTrimTo, (CUmemoryPool, size_t)) \
	F(cuMemPoolSetAttribute, (CUmemoryPool, int, void *)) \
	F(cuMemCreate, (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, \
	  unsigned long long)) \
	F(cuMemRelease, (CUmemGenericAllocationHandle)) \
	F(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *, void *)) \
	F(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)) \
	F(cuMemAddressFree, (CUdeviceptr, size_t)) \
	F(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, \
	  unsigned long long)) \
	F(cuMemUnmap, (CUdeviceptr, size_t)) \
	F(cuMemExportToShareableHandle, (void *, CUmemGenericAllocationHandle, int, \
	  unsigned long long)) \
	F(cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle *, void *, int)) \
	F(cuMemMapArrayAsync, (CUarrayMapInfo *, unsigned int, CUstream)) \
	F(cuIpcGetMemHandle, (CUipcMemHandle *, CUdeviceptr)) \
	F(cuIpcOpenMemHandle_v2, (CUdeviceptr *, CUipcMemHandle, unsigned int)) \
	F(cuIpcCloseMemHandle, (CUdeviceptr)) \
	F(cuArrayCreate, (CUarray *, const CUDA_ARRAY_DESCRIPTOR_v1 *)) \
	F(cuArrayCreate_v2, (CUarray *, const CUDA_ARRAY_DESCRIPTOR *)) \
	F(cuArray3DCreate, (CUarray *, const CUDA_ARRAY3D_DESCRIPTOR_v1 *)) \
	F(cuArray3DCreate_v2, (CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *)) \
	F(cuArrayDestroy, (CUarray)) \
	F(cuMipmappedArrayCreate, (CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, \
	  unsigned int)) \
	F(cuMipmappedArrayDestroy, (CUmipmappedArray)) \
	F(cuStreamBeginCapture_v2, (CUstream, int)) \
	F(cuStreamEndCapture, (CUstream, CUgraph *)) \
	F(cuGraphAddMemAllocNode, (struct CUgraphNode_st **, CUgraph, \
				   struct CUgraphNode_st *const *, size_t, \
				   CUDA_MEM_ALLOC_NODE_PARAMS *)) \
	F(cuGraphAddMemFreeNode, (struct CUgraphNode_st **, CUgraph, \
	  struct CUgraphNode_st *const *, size_t, CUdeviceptr)) \
	F(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long)) \
	F(cuGraphLaunch, (CUgraphExec, CUstream)) \
	F(cuGraphExecDestroy, (CUgraphExec)) \
	F(cuGraphDestroy, (CUgraph)) \
	F(cuDeviceGraphMemTrim, (CUdevice))

struct calls {
#define TRUTH_MEMBER(name, args) CUresult(*name) args;
	TRUTH_CALLS_USED(TRUTH_MEMBER)
#undef TRUTH_MEMBER
};
extern struct calls via;  /* as a program calls them: through the library */
extern struct calls bare; /* the fake driver's own */

/*
 * Something that was allocated, or is to be. Kinds of one call of the driver are made by `make`;
 * those of several are built of such, because each call is judged by itself.
 */
struct piece {
	enum truth_kind kind;
	int variant, device;
	int owner;      /* thread that alone may free it; -1: any */
	uint64_t bytes; /* as asked for */
	uint64_t ask;   /* the most that it can take of the device */
	uint64_t height;
	unsigned int levels;
	CUdeviceptr at;
	CUmemGenericAllocationHandle handle[3];
	void *object; /* array, mipmap, context, graph */
	CUgraphExec exec;
	CUstream stream;
	CUmemoryPool pool;
};

/* A thread of a worker. */
struct thread {
	int index;
	uint64_t random;
	int shrinking;
	unsigned int calls; /* noted */
	CUstream stream[TRUTH_DEVICES];
	CUmemoryPool pool[TRUTH_DEVICES];
	CUcontext current;
	pthread_t id;
};

extern struct truth_board *board;
extern const char *const kind_names[];
extern int self; /* this worker's index */
extern CUcontext primary[TRUTH_DEVICES];

/* Notes a call for reports. */
void note_call(struct thread *t, const char *verb, const struct piece *p, CUresult r);
/* Something is wrong: says what, once, and stops the program. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void use_device(struct thread *t, int device);

/* probe_truth_kinds.c: draws, makes and frees what one call allocates. */
void draw(struct thread *t, struct piece *p, enum truth_kind kind, int device);
CUresult make(struct thread *t, struct piece *p, const struct calls *c);
CUresult drop(struct thread *t, const struct piece *p, const struct calls *c);
/* probe_truth_built.c: the same for what several calls allocate. */
CUresult build(struct thread *t, struct piece *p);
CUresult demolish(struct thread *t, const struct piece *p);
/* probe_truth_other.c: calls that allocate nothing, or for others. */
void do_other(struct thread *t, enum truth_kind kind);

/* probe_truth_meet.c: calls that are carried out in part; threads that meet on one object. */
void do_partly(struct thread *t, int device);
void meet_equip(int device);
void meet(struct thread *t, int device);
void meet_end(int device);

/* probe_truth_check.c: a call and its judgement, and what must be had when all is freed. */
CUresult attempt(struct thread *t, struct piece *p);
CUresult dispose(struct thread *t, const struct piece *p);
/*
 * Around calls that only give back: what they give counts as in flight until the library has heard
 * of it.
 */
void flight_without_ask(void);
void flight_over(void);
void check_everything(struct thread *t, pthread_barrier_t *all);

/*
 * probe_truth.c: keeps a piece until somebody frees it, and takes one out again, at random.
 * 0: no room, or none.
 */
int keep(const struct piece *p);
int take_any(struct thread *t, struct piece *p);

/* Offered by the fake driver. */
void fakegpu_dry_begin(void);
uint64_t fakegpu_dry_end(void);
void fakegpu_flight_begin(const uint64_t *, int);
void fakegpu_flight_end(uint64_t *, int);
uint64_t fakegpu_used(int);
uint64_t fakegpu_used_high(int);
void *fakegpu_function(const char *);

#endif
