/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.c: small CUDA programs by name, run by preload_test under the library. Exit
 * code 0 is success; anything else is the line where it went wrong.
 */
#define _GNU_SOURCE
#include "cuda_abi.h"
#include "nvml_abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ULL << 20)
#define NEED(condition)                                                           \
	do {                                                                      \
		if (!(condition)) {                                               \
			printf("    probe.c:%d: not true: %s\n", __LINE__, #condition); \
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
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxSynchronize(void);
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

CUresult cuArrayCreate(CUarray *, const CUDA_ARRAY_DESCRIPTOR_v1 *);
CUresult cuArrayCreate_v2(CUarray *, const CUDA_ARRAY_DESCRIPTOR *);
CUresult cuArray3DCreate(CUarray *, const CUDA_ARRAY3D_DESCRIPTOR_v1 *);
CUresult cuArray3DCreate_v2(CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *);
CUresult cuArrayDestroy(CUarray);
CUresult cuMipmappedArrayCreate(CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned int);
CUresult cuMipmappedArrayDestroy(CUmipmappedArray);

static void use_device(CUdevice device)
{
	CUcontext context;
	NEED(cuInit(0) == CUDA_SUCCESS);
	NEED(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
	NEED(cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

static size_t left(void)
{
	size_t free_bytes, total;
	NEED(cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS);
	return free_bytes;
}

static CUresult take(uint64_t bytes)
{
	CUdeviceptr at;
	return cuMemAlloc_v2(&at, bytes);
}

/* The limit of all probes is 64 MiB on device 0. */
static void exact(void)
{
	CUdeviceptr a, b;
	use_device(0);
	NEED(cuMemAlloc_v2(&a, 64 * MIB) == CUDA_SUCCESS);
	NEED(left() == 0);
	NEED(cuMemAlloc_v2(&b, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemFree_v2(a) == CUDA_SUCCESS);
	NEED(cuMemAlloc_v2(&a, 64 * MIB + 1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemAlloc_v2(&a, 62 * MIB) == CUDA_SUCCESS);
	NEED(cuMemAlloc_v2(&b, 2 * MIB) == CUDA_SUCCESS);
	NEED(cuMemsetD8_v2(b, 7, 2 * MIB) == CUDA_SUCCESS); /* usable after a refusal */
	NEED(cuMemFree_v2(12345) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemFree_v2(0) == CUDA_SUCCESS);
	NEED(take(0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemAlloc_v2(NULL, 1) != CUDA_SUCCESS);
	NEED(take(UINT64_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void small(void)
{
	static CUdeviceptr at[200000];
	int n = 0;
	use_device(0);
	NEED(take(62 * MIB) == CUDA_SUCCESS);
	while (cuMemAlloc_v2(&at[n], 4096) == CUDA_SUCCESS)
		n++;
	NEED(n == 512); /* 2 MiB in pieces of 4 KiB */
	NEED(left() == 0);
	while (n)
		NEED(cuMemFree_v2(at[--n]) == CUDA_SUCCESS);
	NEED(left() == 2 * MIB);
}

static void kinds(void)
{
	CUdeviceptr at;
	size_t pitch;
	use_device(0);
	NEED(cuMemAllocManaged(&at, 16 * MIB, 1) == CUDA_SUCCESS);
	NEED(cuMemAllocPitch_v2(&at, &pitch, 1000, 16384, 4) == CUDA_SUCCESS); /* 1000 becomes 1024: 16 MiB */
	NEED(pitch == 1024 && left() == 32 * MIB);
	NEED(cuMemAllocPitch_v2(&at, &pitch, 1, 1 << 17, 4) == CUDA_ERROR_OUT_OF_MEMORY); /* asks 128 KiB, takes 64 MiB */
	NEED(left() == 32 * MIB);
	NEED(cuMemAllocPitch_v2(&at, &pitch, SIZE_MAX / 2, 8, 4) != CUDA_SUCCESS);
	NEED(cuMemAllocManaged(&at, 33 * MIB, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemAllocManaged(&at, 32 * MIB, 1) == CUDA_SUCCESS);
}

static void version_one(void)
{
	CUdeviceptr_v1 a, b;
	unsigned int free_bytes, total;
	use_device(0);
	NEED(cuMemGetInfo(&free_bytes, &total) == CUDA_SUCCESS && total == 64 * MIB && free_bytes == 64 * MIB);
	NEED(cuDeviceTotalMem(&total, 0) == CUDA_SUCCESS && total == 64 * MIB);
	NEED(cuMemAlloc(&a, 64 * MIB) == CUDA_SUCCESS);
	NEED(cuMemAlloc(&b, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemFree(a) == CUDA_SUCCESS);
	NEED(left() == 64 * MIB);
}

static void null_arguments(void)
{
	size_t total = 0, free_bytes = 0;
	use_device(0);
	NEED(cuMemGetInfo_v2(NULL, &total) == CUDA_SUCCESS && total == 64 * MIB);
	NEED(cuMemGetInfo_v2(&free_bytes, NULL) == CUDA_SUCCESS && free_bytes == 64 * MIB);
	NEED(cuMemGetInfo_v2(NULL, NULL) == CUDA_SUCCESS);
	NEED(cuDeviceTotalMem_v2(NULL, 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuGetProcAddress_v2(NULL, NULL, 12000, 0, NULL) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemCreate(NULL, 2 * MIB, NULL, 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemAllocAsync(NULL, MIB, NULL) == CUDA_ERROR_INVALID_VALUE);
}

static void pools(void)
{
	CUdeviceptr a, b;
	CUmemoryPool pool;
	uint64_t keep = UINT64_MAX;
	use_device(0);
	NEED(cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
	NEED(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep) == CUDA_SUCCESS);
	NEED(cuMemAllocAsync(&a, 20 * MIB, NULL) == CUDA_SUCCESS);
	NEED(left() == 32 * MIB); /* pools take by 32 MiB */
	NEED(cuMemAllocAsync(&b, 45 * MIB, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemAllocAsync_ptsz(&b, 44 * MIB, NULL) == CUDA_SUCCESS);
	NEED(cuMemAllocAsync(&a, 512, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemFreeAsync_ptsz(b, NULL) == CUDA_SUCCESS);
	NEED(left() == 0);                                /* the pool keeps it */
	NEED(take(2 * MIB) == CUDA_ERROR_OUT_OF_MEMORY); /* so nobody else has it */
	NEED(cuMemAllocAsync(&b, 40 * MIB, NULL) == CUDA_SUCCESS); /* but the pool itself has */
	NEED(cuMemFree_v2(b) == CUDA_SUCCESS);
	NEED(cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS);
	NEED(left() == 32 * MIB);
	NEED(take(32 * MIB) == CUDA_SUCCESS);
}

/* The pool takes more than was asked of it: what does not fit goes back. */
static void granule(void)
{
	CUdeviceptr at;
	use_device(0);
	NEED(take(10 * MIB) == CUDA_SUCCESS);
	NEED(cuMemAllocAsync(&at, 40 * MIB, NULL) == CUDA_ERROR_OUT_OF_MEMORY); /* would take 64 */
	NEED(left() == 54 * MIB);
	NEED(cuMemAllocAsync(&at, 30 * MIB, NULL) == CUDA_SUCCESS && left() == 22 * MIB);
}

static void pool_of_own(void)
{
	CUmemPoolProps props = {.allocType = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUdeviceptr a;
	CUmemoryPool pool;
	use_device(1); /* not the pool's device */
	NEED(cuMemPoolCreate(&pool, &props) == CUDA_SUCCESS);
	NEED(cuMemAllocFromPoolAsync(&a, 65 * MIB, pool, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemAllocFromPoolAsync(&a, 64 * MIB, pool, NULL) == CUDA_SUCCESS);
	use_device(0);
	NEED(left() == 0);
	NEED(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
	NEED(left() == 0); /* in use: the driver keeps it */
	NEED(cuMemFreeAsync(a, NULL) == CUDA_SUCCESS);
	NEED(left() == 64 * MIB);
}

static void synchronised(void)
{
	CUdeviceptr a;
	use_device(0);
	NEED(cuMemAllocAsync(&a, 64 * MIB, NULL) == CUDA_SUCCESS);
	NEED(cuMemFreeAsync(a, NULL) == CUDA_SUCCESS);
	NEED(cuCtxSynchronize() == CUDA_SUCCESS); /* the pool gives it back by itself */
	NEED(take(64 * MIB) == CUDA_SUCCESS);
}

static void mappings(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle h, second;
	CUdeviceptr at;
	use_device(1); /* not the device of the allocation */
	NEED(cuMemCreate(&h, 66 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemCreate(&h, 64 * MIB, &prop, 0) == CUDA_SUCCESS);
	NEED(cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0) == CUDA_SUCCESS);
	NEED(cuMemMap(at, 64 * MIB, 0, h, 0) == CUDA_SUCCESS);
	NEED(cuMemRelease(h) == CUDA_SUCCESS); /* still mapped: still taken */
	NEED(cuMemCreate(&second, 2 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemRetainAllocationHandle(&h, (void *)at) == CUDA_SUCCESS);
	NEED(cuMemUnmap(at, 64 * MIB) == CUDA_SUCCESS); /* retained: still taken */
	NEED(cuMemCreate(&second, 2 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemRelease(h) == CUDA_SUCCESS);
	NEED(cuMemRelease(h) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemCreate(&second, 64 * MIB, &prop, 0) == CUDA_SUCCESS);
	NEED(cuMemRelease(second) == CUDA_SUCCESS);
	prop.location.id = 99;
	NEED(cuMemCreate(&h, 2 * MIB, &prop, 0) == CUDA_ERROR_INVALID_VALUE);
}

static void contexts(void)
{
	CUDA_ARRAY_DESCRIPTOR flat = {4096, 512, CU_AD_FORMAT_FLOAT, 2}; /* 16 MiB */
	CUarray array;
	CUcontext own;
	use_device(0);
	NEED(take(20 * MIB) == CUDA_SUCCESS && cuArrayCreate_v2(&array, &flat) == CUDA_SUCCESS);
	NEED(cuCtxCreate_v2(&own, 0, 0) == CUDA_SUCCESS);
	NEED(take(10 * MIB) == CUDA_SUCCESS && take(4096) == CUDA_SUCCESS && left() == 16 * MIB);
	NEED(cuCtxDestroy_v2(own) == CUDA_SUCCESS); /* its 12 MiB go, the others stay */
	NEED(cuCtxDestroy_v2(own) == CUDA_ERROR_INVALID_CONTEXT);
	use_device(0); /* a second reference */
	NEED(left() == 28 * MIB);
	NEED(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS && left() == 28 * MIB);
	NEED(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS); /* the last */
	NEED(cuDevicePrimaryCtxRelease_v2(0) == CUDA_ERROR_INVALID_CONTEXT);
	use_device(0);
	NEED(left() == 64 * MIB && take(64 * MIB) == CUDA_SUCCESS);
	NEED(cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS);
	use_device(0);
	NEED(left() == 64 * MIB);
}

static void arrays(void)
{
	CUDA_ARRAY_DESCRIPTOR flat = {4096, 2048, CU_AD_FORMAT_FLOAT, 2};                 /* 64 MiB */
	CUDA_ARRAY_DESCRIPTOR_v1 flat1 = {4096, 1024, CU_AD_FORMAT_HALF, 4};              /* 32 MiB */
	CUDA_ARRAY3D_DESCRIPTOR deep = {1024, 1024, 16, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}; /* 16 MiB */
	CUDA_ARRAY3D_DESCRIPTOR_v1 deep1 = {1024, 1024, 17, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
	CUarray a, b, c;
	CUmipmappedArray m;
	use_device(0);
	NEED(cuArrayCreate_v2(&a, &flat) == CUDA_SUCCESS && left() == 0);
	NEED(cuArrayCreate(&b, &flat1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuArrayDestroy(a) == CUDA_SUCCESS && left() == 64 * MIB);
	NEED(cuArrayDestroy(a) == CUDA_ERROR_INVALID_HANDLE);
	NEED(cuArrayCreate(&b, &flat1) == CUDA_SUCCESS);
	NEED(cuArray3DCreate_v2(&c, &deep) == CUDA_SUCCESS && left() == 16 * MIB);
	NEED(cuArray3DCreate(&a, &deep1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMipmappedArrayCreate(&m, &deep, 2) == CUDA_ERROR_OUT_OF_MEMORY); /* 16 + 2 MiB */
	NEED(cuMipmappedArrayCreate(&m, &deep, 1) == CUDA_SUCCESS && left() == 0);
	NEED(cuMipmappedArrayDestroy(m) == CUDA_SUCCESS && left() == 16 * MIB);
	NEED(cuArrayCreate_v2(&a, NULL) == CUDA_ERROR_INVALID_VALUE);
	flat.NumChannels = 3;
	NEED(cuArrayCreate_v2(&a, &flat) != CUDA_SUCCESS && left() == 16 * MIB);
}

static void injected(void)
{
	CUdeviceptr at;
	use_device(0);
	for (int i = 0; i < 3; i++) /* FAKEGPU_FAIL makes the second fail: what was reserved comes back */
		NEED(cuMemAlloc_v2(&at, 20 * MIB) == (i == 1 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS));
	NEED(left() == 24 * MIB);
}

static void nvml(void)
{
	nvmlReturn_t (*init)(void), (*handle)(unsigned, nvmlDevice_t *), (*info)(nvmlDevice_t, nvmlMemory_t *);
	nvmlReturn_t (*info2)(nvmlDevice_t, nvmlMemory_v2_t *), (*uuid)(nvmlDevice_t, char *, unsigned);
	nvmlDevice_t device;
	nvmlMemory_t m;
	nvmlMemory_v2_t m2 = {.version = sizeof m2 | 2u << 24};
	char text[96];
	void *h = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	NEED(h);
	*(void **)&init = dlsym(h, "nvmlInit_v2");
	*(void **)&handle = dlsym(h, "nvmlDeviceGetHandleByIndex_v2");
	*(void **)&info = dlsym(h, "nvmlDeviceGetMemoryInfo");
	*(void **)&info2 = dlsym(h, "nvmlDeviceGetMemoryInfo_v2");
	*(void **)&uuid = dlsym(h, "nvmlDeviceGetUUID");
	use_device(0);
	NEED(take(10 * MIB) == CUDA_SUCCESS);
	NEED(init() == NVML_SUCCESS);
	for (unsigned i = 0; i < 2; i++) { /* NVML's order is not CUDA's here */
		NEED(handle(i, &device) == NVML_SUCCESS && uuid(device, text, sizeof text) == NVML_SUCCESS);
		int limited = !strncmp(text, "GPU-00000000", 12);
		NEED(info(device, &m) == NVML_SUCCESS && info2(device, &m2) == NVML_SUCCESS);
		NEED(m.total == (limited ? 64 : 1024) * MIB && m2.total == m.total);
		NEED(m.used == (limited ? 10 : 0) * MIB && m2.used == m.used);
		NEED(m.used + m.free == m.total && m2.used + m2.free + m2.reserved == m2.total);
	}
}

static void *third(const char *function)
{
	static void *h;
	if (!h)
		h = dlopen(getenv("PROBE_THIRD"), RTLD_NOW | RTLD_GLOBAL);
	NEED(h);
	void *f = dlsym(h, function);
	NEED(f);
	return f;
}

static void rtld_next(void)
{
	void *(*next)(const char *) = (void *(*)(const char *))third("third_next");
	void *first = next("cuMemAlloc_v2"), *getpid_next = next("getpid");
	NEED(first == dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
	for (int i = 0; i < 100; i++) { /* HAMi-core answered NULL from the second time on */
		NEED(next("cuMemAlloc_v2") == first);
		NEED(next("getpid") == getpid_next && getpid_next);
	}
	NEED(((int (*)(void))third("third_marker"))()); /* relative to the caller, not to libvgpu */
}

static void versioned_lookup(void)
{
	void *h = dlopen("libcuda.so.1", RTLD_NOW);
	NEED(dlvsym(RTLD_DEFAULT, "getpid", "GLIBC_2.2.5") == dlsym(RTLD_DEFAULT, "getpid"));
	NEED(dlvsym(RTLD_DEFAULT, "getpid", "GLIBC_0.0") == NULL);
	NEED(dlsym(h, "cuMemAlloc_v2") == dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
	NEED(dlsym(h, "cuNoSuchFunction") == NULL && dlerror() != NULL);
	void *c = dlopen("libc.so.6", RTLD_NOW);
	NEED(dlsym(c, "cuMemAlloc_v2") == NULL); /* a name is where it is, not everywhere */
	NEED(dlsym(c, "curl_easy_init") == NULL && dlsym(c, "cublasCreate_v2") == NULL);
}

/* Pointers must be those of the variant that the driver would have given: compare by behaviour and identity. */
static void proc_address(void)
{
	void *a, *b, *c, *d;
	int status = -1;
	use_device(0);
	NEED(cuGetProcAddress_v2("cuMemAlloc", &a, 2000, 0, &status) == CUDA_SUCCESS && status == 0);
	NEED(cuGetProcAddress_v2("cuMemAlloc", &b, 12000, 0, &status) == CUDA_SUCCESS);
	NEED(a == dlsym(RTLD_DEFAULT, "cuMemAlloc") && b == dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
	NEED(cuGetProcAddress("cuMemAllocAsync", &c, 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM) == CUDA_SUCCESS);
	NEED(cuGetProcAddress("cuMemAllocAsync", &d, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) == CUDA_SUCCESS);
	NEED(c == dlsym(RTLD_DEFAULT, "cuMemAllocAsync") && d == dlsym(RTLD_DEFAULT, "cuMemAllocAsync_ptsz"));
	NEED(cuGetProcAddress_v2("cuGetProcAddress", &a, 12000, 0, &status) == CUDA_SUCCESS);
	NEED(a == dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2"));
	NEED(cuGetProcAddress_v2("cuGetProcAddress", &a, 11030, 0, &status) == CUDA_SUCCESS);
	NEED(a == dlsym(RTLD_DEFAULT, "cuGetProcAddress"));
	NEED(cuGetProcAddress_v2("cuMemAllocAsync", &a, 11010, 0, &status) == CUDA_ERROR_NOT_FOUND && status == 2);
	NEED(cuGetProcAddress_v2("cuNoSuch", &a, 12000, 0, &status) == CUDA_ERROR_NOT_FOUND && status == 1);
}

static void *allocate_until_full(void *context)
{
	CUdeviceptr at;
	long n = 0;
	NEED(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	for (int i = 0; i < 500; i++) {
		if (cuMemAlloc_v2(&at, 2 * MIB) == CUDA_SUCCESS) {
			n++;
			if (i % 3 && cuMemFree_v2(at) == CUDA_SUCCESS)
				n--;
		}
	}
	return (void *)n;
}

static void threads(void)
{
	pthread_t t[8];
	CUcontext context;
	long sum = 0;
	use_device(0);
	NEED(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
	for (int i = 0; i < 8; i++)
		NEED(!pthread_create(&t[i], NULL, allocate_until_full, context));
	for (int i = 0; i < 8; i++) {
		void *n;
		pthread_join(t[i], &n);
		sum += (long)n;
	}
	NEED(sum == 32 && left() == 0);
}

/* Children start before CUDA and fight for 64 MiB; each writes how much it got. */
static void race(void)
{
	int result[2], go[2], status, children = 16;
	long got, sum = 0;
	NEED(!pipe(result) && !pipe(go));
	for (int i = 0; i < children; i++) {
		if (fork())
			continue;
		char c;
		close(go[1]);
		use_device(0);
		for (got = 0; take(2 * MIB) == CUDA_SUCCESS; got++)
			;
		NEED(write(result[1], &got, sizeof got) == sizeof got);
		NEED(read(go[0], &c, 1) == 0); /* hold it until everybody has tried */
		exit(0);
	}
	for (int i = 0; i < children; i++) {
		NEED(read(result[0], &got, sizeof got) == sizeof got);
		sum += got;
	}
	close(go[1]);
	while (wait(&status) > 0)
		NEED(status == 0);
	NEED(sum == 32);
}

static void killed(void)
{
	for (int i = 0; i < 30; i++) {
		int ready[2];
		char c;
		NEED(!pipe(ready));
		pid_t pid = fork();
		if (pid == 0) {
			use_device(0);
			NEED(take(64 * MIB) == CUDA_SUCCESS);
			NEED(write(ready[1], "x", 1) == 1);
			for (;;)
				pause();
		}
		NEED(read(ready[0], &c, 1) == 1);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		close(ready[0]), close(ready[1]);
	}
	use_device(0);
	NEED(take(64 * MIB) == CUDA_SUCCESS);
}

/* A child without exec: CUDA is gone there, the parent's books are untouched. */
static void forked(void)
{
	int status;
	use_device(0);
	NEED(take(32 * MIB) == CUDA_SUCCESS);
	pid_t pid = fork();
	if (pid == 0) {
		CUdeviceptr at;
		exit(cuMemAlloc_v2(&at, MIB) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	}
	NEED(waitpid(pid, &status, 0) == pid && status == 0);
	NEED(left() == 32 * MIB);
	NEED(take(32 * MIB) == CUDA_SUCCESS && take(2 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void refused(void)
{
	CUdeviceptr at;
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle h;
	size_t pitch;
	use_device(0);
	NEED(cuMemAlloc_v2(&at, 1) == CUDA_ERROR_NOT_PERMITTED);
	NEED(cuMemAllocManaged(&at, 1, 1) == CUDA_ERROR_NOT_PERMITTED);
	NEED(cuMemAllocPitch_v2(&at, &pitch, 1, 1, 4) == CUDA_ERROR_NOT_PERMITTED);
	NEED(cuMemAllocAsync(&at, 1, NULL) == CUDA_ERROR_NOT_PERMITTED);
	NEED(cuMemCreate(&h, 2 * MIB, &prop, 0) == CUDA_ERROR_NOT_PERMITTED);
	NEED(left() == 0);
}

/* On a container's second device: unlimited there, or refused when the limits do not name it. */
static void unlimited(void)
{
	use_device(1);
	NEED(left() == 1024 * MIB && take(1024 * MIB) == CUDA_SUCCESS && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void unnamed(void)
{
	use_device(1);
	NEED(take(1) == CUDA_ERROR_NOT_PERMITTED);
}

static void second_limited(void)
{
	use_device(1);
	NEED(take(64 * MIB) == CUDA_SUCCESS && take(2 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	use_device(0);
	NEED(take(1024 * MIB) == CUDA_SUCCESS);
}

/* What a program without CUDA must find unchanged. */
static void untouched(void)
{
	struct sigaction s;
	mode_t mask = umask(022);
	umask(mask);
	for (int i = 1; i < 32; i++)
		if (!sigaction(i, NULL, &s))
			NEED(s.sa_handler == SIG_DFL || s.sa_handler == SIG_IGN);
	NEED(dlsym(RTLD_DEFAULT, "curl_easy_init") == NULL);
	NEED(dlsym(RTLD_DEFAULT, "cuNothing") == NULL && dlsym(RTLD_NEXT, "cudaMalloc") == NULL);
	NEED(access(getenv("PROBE_REGION"), F_OK)); /* no look-up has started anything */
}

static const struct {
	const char *name;
	void (*run)(void);
} probes[] = {
	{"exact", exact}, {"small", small}, {"kinds", kinds}, {"version-one", version_one}, {"null-arguments", null_arguments},
	{"pools", pools}, {"pool-of-own", pool_of_own}, {"granule", granule}, {"synchronised", synchronised}, {"mappings", mappings},
	{"arrays", arrays}, {"contexts", contexts},
	{"injected", injected}, {"nvml", nvml}, {"rtld-next", rtld_next}, {"versioned-lookup", versioned_lookup},
	{"proc-address", proc_address}, {"threads", threads}, {"race", race}, {"killed", killed}, {"forked", forked},
	{"refused", refused}, {"unlimited", unlimited}, {"unnamed", unnamed}, {"second-limited", second_limited},
	{"untouched", untouched},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof probes / sizeof *probes; i++)
		if (!strcmp(argv[1], probes[i].name))
			return probes[i].run(), 0;
	fprintf(stderr, "probe: unknown probe\n");
	return 2;
}
