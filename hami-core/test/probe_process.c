/* SPDX-License-Identifier: Apache-2.0 */
/* probe_process.c: ways to reach the driver; threads, processes and their deaths; refusals. */
#define _GNU_SOURCE
#include "probe.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

void probe_rtld_next(void)
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

void probe_versioned_lookup(void)
{
	void *h = dlopen("libcuda.so.1", RTLD_NOW);
	NEED(dlvsym(RTLD_DEFAULT, "getpid", "GLIBC_2.2.5") == dlsym(RTLD_DEFAULT, "getpid"));
	NEED(dlvsym(RTLD_DEFAULT, "getpid", "GLIBC_0.0") == NULL);
	(void)dlerror();
	/* success leaves no error behind */
	NEED(dlsym(h, "cuMemAlloc_v2") == dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") && dlerror() == NULL);
	NEED(dlsym(h, "cuNoSuchFunction") == NULL && dlerror() != NULL);
	void *c = dlopen("libc.so.6", RTLD_NOW);
	NEED(dlsym(c, "cuMemAlloc_v2") == NULL); /* a name is where it is, not everywhere */
	NEED(dlsym(c, "curl_easy_init") == NULL && dlsym(c, "cublasCreate_v2") == NULL);
}

/*
 * Pointers must be those of the variant that the driver would have given: compare by behaviour and
 * identity.
 */
void probe_proc_address(void)
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
	NEED(cuGetProcAddress_v2("cuMemAllocAsync", &a, 11010, 0, &status) == CUDA_SUCCESS && status == 2 && !a);
	NEED(cuGetProcAddress_v2("cuNoSuch", &a, 12000, 0, &status) == CUDA_SUCCESS && status == 1 && !a);
	NEED(cuGetProcAddress("cuNoSuch", &b, 12000, 0) == CUDA_ERROR_NOT_FOUND);
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

void probe_threads(void)
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
void probe_race(void)
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

void probe_killed(void)
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
void probe_forked(void)
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

void probe_refused(void)
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
void probe_unlimited(void)
{
	use_device(1);
	NEED(left() == 1024 * MIB && take(1024 * MIB) == CUDA_SUCCESS && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
}

void probe_unnamed(void)
{
	use_device(1);
	NEED(take(1) == CUDA_ERROR_NOT_PERMITTED);
}

void probe_second_limited(void)
{
	use_device(1);
	NEED(take(64 * MIB) == CUDA_SUCCESS && take(2 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	use_device(0);
	NEED(take(1024 * MIB) == CUDA_SUCCESS);
}

/* What a program without CUDA must find unchanged. */
void probe_untouched(void)
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

