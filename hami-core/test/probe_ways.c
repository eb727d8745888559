/* SPDX-License-Identifier: Apache-2.0 */
/* probe_ways.c: ways out of the limit that a program can try by itself. */
#define _GNU_SOURCE
#include "probe.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hamicore_abi.h"

typedef CUresult (*plugin_take)(size_t, int);

/* The plugin gets 64 MiB, by its own function and by one that it looks up, and no more. */
static void plugin_is_limited(void *handle)
{
	NEED(handle);
	plugin_take plugin = (plugin_take)dlsym(handle, "plugin_take");
	int (*start)(void) = (int (*)(void))dlsym(handle, "plugin_start");
	NEED(plugin && start && start() == 0);
	NEED(plugin(62 * MIB, 0) == CUDA_SUCCESS);
	NEED(plugin(4 * MIB, 0) == CUDA_ERROR_OUT_OF_MEMORY && plugin(4 * MIB, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(plugin(2 * MIB, 1) == CUDA_SUCCESS && plugin(1, 0) == CUDA_ERROR_OUT_OF_MEMORY);
}

void probe_deepbind(void)
{
	plugin_is_limited(dlopen(getenv("PROBE_PLUGIN"), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND));
}

void probe_dlmopen(void)
{
	plugin_is_limited(dlmopen(LM_ID_NEWLM, getenv("PROBE_PLUGIN"), RTLD_NOW));
	use_device(0); /* the namespaces share the limit */
	NEED(take(1) == CUDA_ERROR_OUT_OF_MEMORY);
}

#define KEYS 32

/*
 * What a thread has under the program's keys stays, though each namespace's C library counts its
 * own keys from 0.
 */
void probe_dlmopen_keys(void)
{
	pthread_key_t key[KEYS];
	void *handle = dlmopen(LM_ID_NEWLM, getenv("PROBE_PLUGIN"), RTLD_NOW);
	NEED(handle);
	int (*start)(void) = (int (*)(void))dlsym(handle, "plugin_start"), (*launch)(void) = (int (*)(void))dlsym(handle, "plugin_launch");
	for (int i = 0; i < KEYS; i++)
		NEED(!pthread_key_create(&key[i], NULL) && !pthread_setspecific(key[i], &key[i]));
	NEED(start && launch && start() == 0 && launch() == 0);
	for (int i = 0; i < KEYS; i++)
		NEED(pthread_getspecific(key[i]) == &key[i]);
}

/* The driver itself in a namespace, its functions by name. */
void probe_dlmopen_driver(void)
{
	CUdeviceptr at;
	void *h = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
	NEED(h);
	use_device(0);
	NEED(((CUresult(*)(CUdeviceptr *, size_t))dlsym(h, "cuMemAlloc_v2"))(&at, 66 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
}

struct vgpu_region *probe_region(void)
{
	int fd = open(getenv("PROBE_REGION"), O_RDWR);
	struct vgpu_region *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	NEED(fd >= 0 && r != MAP_FAILED);
	close(fd);
	return r;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* What this process is as a holder of the region's lock. */
static uint32_t own_number(void)
{
	const struct vgpu_region *r = probe_region();
	for (uint32_t i = 0; i < HAMI_PROCESSES; i++)
		if (r->ext.slot[i].state == SLOT_LIVE && r->ext.slot[i].pid == getpid())
			return i + 1;
	NEED(!"this process has a slot");
	return 0;
}

/* A process dies with the region's lock held and its books half written. */
void probe_lock_holder(void)
{
	int status;
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			use_device(0);
			NEED(take(64 * MIB) == CUDA_SUCCESS);
			probe_region()->ext.lock = own_number();
			probe_region()->ext.reserved[0] = 1;
			raise(SIGKILL);
		}
		NEED(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
		double start = now();
		pid = fork();
		if (pid == 0) {
			use_device(0);
			NEED(take(64 * MIB) == CUDA_SUCCESS && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
			exit(0);
		}
		NEED(waitpid(pid, &status, 0) == pid && status == 0);
		NEED(now() - start < 1);
	}
}

/*
 * The region is the tenant's to write. What that cannot do: free a process of its own limit, or
 * crash it.
 */
void probe_region_written(void)
{
	use_device(0);
	NEED(take(40 * MIB) == CUDA_SUCCESS);
	struct vgpu_region *r = probe_region();
	memset(&r->ext.slot, 0, sizeof r->ext.slot);
	memset(&r->ext.reserved, 0, sizeof r->ext.reserved);
	NEED(take(26 * MIB) == CUDA_ERROR_OUT_OF_MEMORY && take(24 * MIB) == CUDA_SUCCESS);
	/* what monitors read; the limit comes from the limits file */
	memset(&r->hami.limit, 0, sizeof r->hami.limit);
	NEED(take(1) == CUDA_ERROR_OUT_OF_MEMORY);
	memset(r, 0, sizeof *r);
	NEED(take(1) == CUDA_ERROR_OUT_OF_MEMORY && left() == 0);
	unlink(getenv("PROBE_REGION"));
	NEED(take(1) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* The sum alone is written, and the slots still tell what everybody has. */
void probe_sum_written(void)
{
	CUdeviceptr at;
	use_device(0);
	NEED(take(40 * MIB) == CUDA_SUCCESS && cuMemAlloc_v2(&at, 4 * MIB) == CUDA_SUCCESS);
	struct vgpu_region *r = probe_region();
	r->ext.reserved[0] = 0;
	NEED(take(26 * MIB) == CUDA_ERROR_OUT_OF_MEMORY && left() == 20 * MIB);
	r->ext.reserved[0] = 0;
	NEED(cuMemFree_v2(at) == CUDA_SUCCESS && left() == 24 * MIB);
	r->ext.reserved[0] = 1;
	NEED(take(26 * MIB) == CUDA_ERROR_OUT_OF_MEMORY && take(24 * MIB) == CUDA_SUCCESS);
	r->ext.reserved[0] = 0;
	NEED(take(1) == CUDA_ERROR_OUT_OF_MEMORY && left() == 0);
	r->ext.slot[0].used[0] = r->ext.reserved[0] = 0; /* and what the slot says with it */
	NEED(take(1) == CUDA_ERROR_OUT_OF_MEMORY && left() == 0);
}

/* Every allocation by per-thread names and by look-ups that ask for them. */
void probe_per_thread(void)
{
	CUdeviceptr at;
	CUresult (*async)(CUdeviceptr *, size_t, CUstream);
	use_device(0);
	NEED(cuGetProcAddress("cuMemAllocAsync", (void **)&async, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) == CUDA_SUCCESS);
	NEED(async(&at, 66 * MIB, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemAllocAsync_ptsz(&at, 66 * MIB, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemAllocAsync_ptsz(&at, 64 * MIB, NULL) == CUDA_SUCCESS);
	NEED(async(&at, 1, NULL) == CUDA_ERROR_OUT_OF_MEMORY && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* Releasing a handle while it is mapped gives nothing back: the memory is still there. */
void probe_early_release(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle h;
	CUdeviceptr at;
	use_device(0);
	for (int i = 0; i < 2; i++) {
		NEED(cuMemCreate(&h, 64 * MIB, &prop, 0) == CUDA_SUCCESS);
		NEED(cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0) == CUDA_SUCCESS && cuMemMap(at, 64 * MIB, 0, h, 0) == CUDA_SUCCESS);
		NEED(cuMemRelease(h) == CUDA_SUCCESS);
		NEED(cuMemCreate(&h, 2 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
		NEED(cuMemUnmap(at, 64 * MIB) == CUDA_SUCCESS);
	}
}
