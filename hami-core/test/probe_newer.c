/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_newer.c: what drivers of CUDA 12.8 to 13.4 have added that takes memory or puts it back;
 * and what threads with small stacks and forked children see of the library.
 */
#define _GNU_SOURCE
#include "probe.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

CUresult cuCheckpointProcessLock(int, void *);
CUresult cuCheckpointProcessUnlock(int, void *);
CUresult cuCheckpointProcessGetState(int, int *);
CUresult cuCheckpointProcessCheckpoint(int, CUcheckpointCheckpointArgs *);
CUresult cuCheckpointProcessRestore(int, CUcheckpointRestoreArgs *);
CUresult cuCheckpointOperationComplete(void *);
uint64_t fakegpu_used(int ordinal);

/* The second part of device 0, and a place that no driver has yet. */
#define PART {CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN, 1 << 8}

void probe_newer_places(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = PART};
	CUmemPoolProps props = {.allocType = 1, .location = PART};
	CUmemGenericAllocationHandle h;
	CUmemoryPool pool;
	CUdeviceptr at;
	use_device(0);
	NEED(cuMemCreate(&h, 66 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemCreate(&h, 40 * MIB, &prop, 0) == CUDA_SUCCESS && left() == 24 * MIB);
	NEED(fakegpu_used(0) == 40 * MIB && cuMemRelease(h) == CUDA_SUCCESS && left() == 64 * MIB);
	NEED(cuMemPoolCreate(&pool, &props) == CUDA_SUCCESS);
	NEED(cuMemAllocFromPoolAsync(&at, 66 * MIB, pool, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemAllocFromPoolAsync(&at, 40 * MIB, pool, NULL) == CUDA_SUCCESS && left() == 0);
	NEED(fakegpu_used(0) == 64 * MIB);
	NEED(cuMemFreeAsync(at, NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	NEED(cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS);
	NEED(left() == 64 * MIB && fakegpu_used(0) == 0);
}

/* A process that takes 48 MiB when it is told, and gives them back when it is told again. */
struct holder {
	pid_t pid;
	int tell, told;
};

static struct holder start_holder(void)
{
	int ready[2], go[2];
	char c;
	NEED(!pipe(ready) && !pipe(go));
	pid_t pid = fork();
	if (pid == 0) {
		CUdeviceptr at;
		alarm(60);
		close(go[1]);
		NEED(read(go[0], &c, 1) == 1);
		use_device(0);
		NEED(cuMemAlloc_v2(&at, 48 * MIB) == CUDA_SUCCESS && write(ready[1], "x", 1) == 1);
		NEED(read(go[0], &c, 1) == 1 && left() == 16 * MIB);
		NEED(take(18 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
		NEED(cuMemFree_v2(at) == CUDA_SUCCESS && left() == 64 * MIB);
		exit(0);
	}
	close(ready[1]);
	return (struct holder){pid, go[1], ready[0]};
}

static void hold(const struct holder *h)
{
	char c;
	NEED(write(h->tell, "x", 1) == 1 && read(h->told, &c, 1) == 1);
}

static void *operation;

static void *mapped(void)
{
	return getenv("PROBE_MAPPED") ? &operation : NULL;
}

/* Completes what a call has begun that maps the memory for the caller to copy. */
static void complete(void)
{
	if (mapped())
		NEED(cuCheckpointOperationComplete(operation) == CUDA_SUCCESS);
}

static void checkpoint(pid_t pid)
{
	CUcheckpointCheckpointArgs args = {.customStorageInfo_out = mapped()};
	NEED(cuCheckpointProcessLock(pid, NULL) == CUDA_SUCCESS && left() == 16 * MIB);
	NEED(cuCheckpointProcessCheckpoint(pid, &args) == CUDA_SUCCESS);
	NEED(left() == (mapped() ? 16 : 64) * MIB);
	complete();
	NEED(left() == 64 * MIB && fakegpu_used(0) == 0);
}

void probe_checkpoint(void)
{
	CUcheckpointRestoreArgs args = {.customStorageInfo_out = mapped()};
	CUdeviceptr at;
	int status, state;
	struct holder first = start_holder(), second = start_holder();
	pid_t pid = first.pid;
	use_device(0);
	hold(&first);
	checkpoint(pid);
	NEED(cuMemAlloc_v2(&at, 60 * MIB) == CUDA_SUCCESS);
	NEED(cuCheckpointProcessRestore(pid, &args) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(fakegpu_used(0) == 60 * MIB && left() == 4 * MIB);
	NEED(cuCheckpointProcessGetState(pid, &state) == CUDA_SUCCESS &&
	     state == CU_PROCESS_STATE_CHECKPOINTED);
	NEED(cuMemFree_v2(at) == CUDA_SUCCESS);
	NEED(cuCheckpointProcessRestore(pid, &args) == CUDA_SUCCESS && left() == 16 * MIB);
	complete();
	NEED(fakegpu_used(0) == 48 * MIB && take(18 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuCheckpointProcessRestore(pid, &args) == CUDA_ERROR_ILLEGAL_STATE);
	NEED(left() == 16 * MIB && cuCheckpointProcessUnlock(pid, NULL) == CUDA_SUCCESS);
	NEED(write(first.tell, "x", 1) == 1 && waitpid(pid, &status, 0) == pid && status == 0);
	NEED(left() == 64 * MIB);
	/* One that ends in a checkpoint leaves nothing, and nobody else is taken for it */
	hold(&second);
	checkpoint(second.pid);
	NEED(kill(second.pid, SIGKILL) == 0 && waitpid(second.pid, &status, 0) == second.pid);
	NEED(take(64 * MIB) == CUDA_SUCCESS && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void *nvml_function(const char *name)
{
	void *f = dlsym(dlopen("libnvidia-ml.so.1", RTLD_NOW), name);
	NEED(f);
	return f;
}

static nvmlDevice_t limited_device(void)
{
	nvmlDevice_t device;
	NEED(((nvmlReturn_t(*)(void))nvml_function("nvmlInit_v2"))() == NVML_SUCCESS);
	NEED(((nvmlReturn_t(*)(const char *, nvmlDevice_t *))nvml_function("nvmlDeviceGetHandleByUUID"))(
		     "GPU-00000000-0000-0000-0000-000000000001", &device) == NVML_SUCCESS);
	return device;
}

void probe_memory_limits(void)
{
	nvmlReturn_t (*get)(nvmlDevice_t, nvmlGetMemoryLimits_v1_t *) =
		(nvmlReturn_t(*)(nvmlDevice_t, nvmlGetMemoryLimits_v1_t *))nvml_function(
			"nvmlDeviceGetMemoryLimits_v1");
	nvmlReturn_t (*set)(nvmlDevice_t, nvmlSetMemoryLimits_v1_t *) =
		(nvmlReturn_t(*)(nvmlDevice_t, nvmlSetMemoryLimits_v1_t *))nvml_function(
			"nvmlDeviceSetMemoryLimits_v1");
	nvmlGetMemoryLimits_v1_t got = {.nameSpace = "/sys/fs/cgroup"};
	nvmlSetMemoryLimits_v1_t tighter = {"/sys/fs/cgroup", 8 * MIB, 32 * MIB};
	nvmlDevice_t device = limited_device();
	use_device(0);
	NEED(take(10 * MIB) == CUDA_SUCCESS && get(device, &got) == NVML_SUCCESS);
	NEED(got.hardLimit == 64 * MIB && got.softLimit == 0 && got.currentUsed == 10 * MIB);
	NEED(set(device, &tighter) == NVML_SUCCESS && get(device, &got) == NVML_SUCCESS);
	NEED(got.hardLimit == 32 * MIB && got.softLimit == 8 * MIB);
	NEED(get(device, NULL) == NVML_ERROR_INVALID_ARGUMENT);
}

#define STACK (1 << 20)
#define PAINT 0xa5

/* Prints how much of its stack a thread uses for a call. */
static void measure_stack(const char *name, void *(*call)(void *))
{
	pthread_t thread;
	pthread_attr_t attributes;
	unsigned char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t unused = 0;
	NEED(stack != MAP_FAILED && !pthread_attr_init(&attributes));
	memset(stack, PAINT, STACK);
	NEED(!pthread_attr_setstack(&attributes, stack, STACK));
	NEED(!pthread_create(&thread, &attributes, call, NULL) && !pthread_join(thread, NULL));
	while (unused < STACK && stack[unused] == PAINT)
		unused++;
	printf("%s %zu\n", name, STACK - unused);
	munmap(stack, STACK);
}

static nvmlDevice_t listed;
static CUcontext shared;

static void *start(void *unused)
{
	use_device(0);
	NEED(cuDevicePrimaryCtxRetain(&shared, 0) == CUDA_SUCCESS);
	return unused;
}

static void *list(void *unused)
{
	nvmlProcessInfo_v2_t out[8];
	unsigned count = 8;
	NEED(((nvmlReturn_t(*)(nvmlDevice_t, unsigned *, nvmlProcessInfo_v2_t *))nvml_function(
		     "nvmlDeviceGetComputeRunningProcesses_v3"))(listed, &count, out) == NVML_SUCCESS);
	return unused;
}

static void *make_context(void *unused)
{
	CUcontext own;
	NEED(cuCtxCreate_v2(&own, 0, 0) == CUDA_SUCCESS && cuCtxDestroy_v2(own) == CUDA_SUCCESS);
	return unused;
}

static void *allocate(void *unused)
{
	CUdeviceptr at;
	NEED(cuCtxSetCurrent(shared) == CUDA_SUCCESS && left() > 0);
	NEED(cuMemAlloc_v2(&at, 512) == CUDA_SUCCESS && cuMemFree_v2(at) == CUDA_SUCCESS);
	return unused;
}

void probe_stack(void)
{
	measure_stack("start", start);
	listed = limited_device();
	measure_stack("list", list);
	measure_stack("context", make_context);
	measure_stack("allocation", allocate);
}

static nvmlReturn_t (*memory_info)(nvmlDevice_t, nvmlMemory_t *);

static void *ask_forever(void *device)
{
	nvmlMemory_t memory;
	for (;;)
		memory_info(device, &memory);
	return NULL;
}

/* The parent has not started CUDA, so that its children can. */
void probe_forked_in_nvml(void)
{
	enum { CHILDREN = 8 };
	pthread_t thread;
	int status;
	nvmlDevice_t device = limited_device();
	*(void **)&memory_info = nvml_function("nvmlDeviceGetMemoryInfo");
	NEED(!pthread_create(&thread, NULL, ask_forever, device));
	for (int i = 0; i < CHILDREN; i++) {
		usleep(10000);
		pid_t pid = fork();
		if (pid == 0) {
			alarm(120); /* it hangs */
			use_device(0);
			NEED(take(66 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
			exit(0);
		}
		NEED(pid > 0);
	}
	for (int i = 0; i < CHILDREN; i++)
		NEED(wait(&status) > 0 && status == 0);
	exit(0); /* not by the other thread's leave */
}
