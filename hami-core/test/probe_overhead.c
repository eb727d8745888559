/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_overhead.c: contexts of 6 MiB and libraries of 4 MiB in a share of 64 MiB. The
 * region's books are read as a monitor reads them: PROBE_REGION, HAMi's offsets.
 */
#define _GNU_SOURCE
#include "probe.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Field 0 context, 1 module, 2 data, 4 total of device 0 in the slot of this process. */
static uint64_t book(int field)
{
	int fd = open(getenv("PROBE_REGION"), O_RDONLY);
	uint64_t value = UINT64_MAX;
	NEED(fd >= 0);
	unsigned char *b = mmap(NULL, 2008952, PROT_READ, MAP_SHARED, fd, 0);
	NEED(b != MAP_FAILED);
	for (int i = 0; i < 1024; i++)
		if (*(int32_t *)(b + 1856 + i * 1960) == getpid())
			value = *(uint64_t *)(b + 1856 + i * 1960 + 8 + field * 8);
	munmap(b, 2008952);
	close(fd);
	return value;
}

/* The fake reads this when a context is made; so children can be told another cost. */
static void cost(const char *context, const char *library)
{
	setenv("FAKEGPU_CONTEXT", context, 1);
	setenv("FAKEGPU_LIBRARY", library, 1);
}

void probe_context_charged(void)
{
	CUcontext one, two, three;
	cost("6", "0");
	use_device(0);
	NEED(left() == 58 * MIB && book(0) == 6 * MIB && book(2) == 0 && book(4) == 6 * MIB);
	use_device(0); /* a second reference is not a second context */
	NEED(left() == 58 * MIB);
	NEED(take(58 * MIB) == CUDA_SUCCESS && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(book(0) == 6 * MIB && book(2) == 58 * MIB && book(4) == 64 * MIB);
	NEED(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS && book(4) == 64 * MIB);
	NEED(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS && book(4) == 0 && book(0) == 0);
	NEED(cuCtxCreate_v2(&one, 0, 0) == CUDA_SUCCESS && left() == 58 * MIB);
	NEED(cuCtxCreate_v3(&two, NULL, 0, 0, 0) == CUDA_SUCCESS && left() == 52 * MIB);
	NEED(cuCtxCreate_v4(&three, NULL, 0, 0) == CUDA_SUCCESS && left() == 46 * MIB);
	NEED(cuCtxDestroy_v2(three) == CUDA_SUCCESS && cuCtxDestroy_v2(two) == CUDA_SUCCESS && left() == 58 * MIB);
	NEED(cuCtxDestroy_v2(one) == CUDA_SUCCESS && book(4) == 0);
	use_device(0);
	NEED(cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS && book(4) == 0);
}

void probe_context_free(void)
{
	cost("6", "0");
	use_device(0);
	NEED(left() == 64 * MIB && take(64 * MIB) == CUDA_SUCCESS);
	/* shown, not counted */
	NEED(book(0) == 6 * MIB && book(2) == 64 * MIB && book(4) == 64 * MIB);
}

/* A context larger than the share: the program starts, the driver works, memory is refused. */
void probe_context_over(void)
{
	cost("90", "0");
	use_device(0);
	NEED(left() == 0 && take(1) == CUDA_ERROR_OUT_OF_MEMORY && cuCtxSynchronize() == CUDA_SUCCESS);
	NEED(book(4) == 90 * MIB);
}

/*
 * NVML does not know this process: by the card's free memory, and the smallest of several counts.
 */
void probe_context_unknown(void)
{
	int status;
	cost("8", "0");
	if (fork() == 0) {
		use_device(0);
		/* one count is not believed: another tenant may be in it */
		NEED(left() == 64 * MIB);
		exit(0);
	}
	NEED(wait(&status) > 0 && status == 0);
	cost("6", "0");
	use_device(0);
	/* the first measurement was larger: something was taken meanwhile */
	NEED(left() == 58 * MIB);
	CUlibrary library;
	cost("6", "4");
	NEED(cuLibraryLoadData(&library, "x", NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS);
	NEED(book(1) == 0); /* nobody can say whose that was */
}

/* Sixteen processes at once, nothing known at first: all are charged the same in the end. */
void probe_context_together(void)
{
	int go[2], ready[2], status;
	char c;
	cost("2", "0");
	NEED(!pipe(go) && !pipe(ready));
	for (int i = 0; i < 16; i++)
		if (fork() == 0) {
			close(go[1]);
			use_device(0);
			NEED(write(ready[1], "x", 1) == 1);
			NEED(read(go[0], &c, 1) == 0);
			(void)left();
			exit(book(0) == 2 * MIB ? 0 : 1);
		}
	for (int i = 0; i < 16; i++)
		NEED(read(ready[0], &c, 1) == 1);
	/* two more, one after the other: what they find holds for all */
	for (int i = 0; i < 2; i++) {
		if (fork() == 0) {
			use_device(0);
			NEED(getenv("FAKEGPU_NVML_PROCESSES") || (left() == 30 * MIB && book(0) == 2 * MIB));
			exit(0);
		}
		NEED(wait(&status) > 0 && status == 0);
	}
	close(go[1]);
	while (wait(&status) > 0)
		NEED(status == 0);
}

void probe_code_charged(void)
{
	CUlibrary a, b;
	cost("6", "4");
	use_device(0);
	NEED(take(10 * MIB) == CUDA_SUCCESS);
	NEED(cuLibraryLoadData(&a, "x", NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS);
	NEED(left() == 44 * MIB && book(1) == 4 * MIB);
	NEED(cuLibraryLoadData(&b, "x", NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS && left() == 40 * MIB);
	/* 8 more than a context has */
	NEED(cuCtxSetLimit(2, 16 * MIB) == CUDA_SUCCESS && left() == 32 * MIB);
	NEED(book(1) == 8 * MIB && book(2) == 18 * MIB);
	struct CUkern_st *kernel;
	setenv("FAKEGPU_KERNEL", "2", 1);
	NEED(cuLibraryGetKernel(&kernel, a, "late") == CUDA_SUCCESS);
	/* code that comes behind our back is seen soon */
	for (int i = 0; i < 100 && left() != 30 * MIB; i++)
		usleep(20000);
	NEED(left() == 30 * MIB && book(1) == 10 * MIB);
	NEED(cuLibraryUnload(a) == CUDA_SUCCESS && left() == 36 * MIB);
	NEED(take(36 * MIB) == CUDA_SUCCESS && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
	/* code is not refused */
	NEED(cuLibraryLoadData(&a, "x", NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS && left() == 0);
	NEED(cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS && book(1) == 0 && book(4) == 0);
}

/*
 * A program whose next look-up of a kernel takes 8 MiB for code, behind our back. It has done so
 * once.
 */
static CUlibrary begin_with_late_code(struct CUkern_st **kernel)
{
	CUlibrary library;
	cost("6", "0");
	setenv("FAKEGPU_KERNEL", "8", 1);
	use_device(0);
	NEED(cuLibraryLoadData(&library, "x", NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS);
	NEED(cuLibraryGetKernel(kernel, library, "late") == CUDA_SUCCESS && book(1) == 0);
	return library;
}

/*
 * A program that allocates from pools and by handles alone: code it loads lazily is seen within 2
 * s, and before a refusal.
 */
void probe_code_pooled(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle h;
	CUdeviceptr at;
	struct CUkern_st *kernel;
	CUlibrary library = begin_with_late_code(&kernel);
	usleep(150000);
	NEED(cuMemAllocAsync(&at, 60 * MIB, NULL) == CUDA_ERROR_OUT_OF_MEMORY && book(1) == 8 * MIB);
	NEED(cuLibraryGetKernel(&kernel, library, "late") == CUDA_SUCCESS);
	for (int i = 0; i < 150 && book(1) != 16 * MIB; i++) {
		NEED(cuMemAllocAsync(&at, MIB, NULL) == CUDA_SUCCESS && cuMemFreeAsync(at, NULL) == CUDA_SUCCESS);
		usleep(20000);
	}
	NEED(book(1) == 16 * MIB && cuLibraryGetKernel(&kernel, library, "late") == CUDA_SUCCESS);
	for (int i = 0; i < 150 && book(1) != 24 * MIB; i++) {
		NEED(cuMemCreate(&h, 2 * MIB, &prop, 0) == CUDA_SUCCESS && cuMemRelease(h) == CUDA_SUCCESS);
		usleep(20000);
	}
	NEED(book(1) == 24 * MIB);
}

/* Fills the share in pieces of 1 MiB as fast as it can; MiB that it got. */
static uint64_t fill_at_once(int pooled)
{
	CUdeviceptr at;
	for (uint64_t n = 0;; n++) {
		CUresult r = pooled ? cuMemAllocAsync(&at, MIB, NULL) : cuMemAlloc_v2(&at, MIB);
		if (r == CUDA_ERROR_OUT_OF_MEMORY)
			return n;
		NEED(r == CUDA_SUCCESS);
	}
}

/*
 * A program that loads code and takes all of its memory within a tenth of a second after its
 * start.
 */
void probe_code_hasty(void)
{
	struct CUkern_st *kernel;
	(void)begin_with_late_code(&kernel);
	usleep(30000);
	uint64_t got = fill_at_once(getenv("PROBE_POOLED") != NULL);
	NEED(book(1) == 8 * MIB && got <= 64 - 6 - 8);
}

/*
 * NVML speaks of the host's PIDs, and one of them is ours: what that process has is none of our
 * code.
 */
void probe_namesake(void)
{
	CUlibrary library;
	cost("6", "4");
	setenv("FAKEGPU_NVML_NAMESAKE", "300", 1);
	use_device(0);
	usleep(150000);
	NEED(left() == 64 * MIB && take(60 * MIB) == CUDA_SUCCESS && book(1) == 0);
	NEED(cuLibraryLoadData(&library, "x", NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS && book(1) == 0);
}

/* Processes before this one have told the region all that it wants to know of a context. */
static void know_contexts(void)
{
	int status;
	cost("6", "0");
	for (int i = 0; i < 4; i++) {
		if (fork() == 0) {
			use_device(0);
			exit(0);
		}
		NEED(wait(&status) > 0 && status == 0);
	}
}

/* More than code is believed to take, by a process that came onto NVML's list with its context. */
void probe_code_above(void)
{
	struct CUkern_st *kernel;
	CUlibrary library;
	know_contexts();
	use_device(0);
	setenv("FAKEGPU_KERNEL", "9216", 1);
	NEED(left() == 58 * MIB && cuLibraryLoadData(&library, "x", NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS);
	NEED(cuLibraryGetKernel(&kernel, library, "large") == CUDA_SUCCESS);
	for (int i = 0; i < 100 && left(); i++)
		usleep(20000);
	NEED(left() == 0 && book(1) == 9216 * MIB && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
}

void probe_namesake_known(void)
{
	know_contexts();
	setenv("FAKEGPU_NVML_NAMESAKE", "300", 1);
	use_device(0);
	usleep(150000);
	NEED(left() == 58 * MIB && book(1) == 0 && take(58 * MIB) == CUDA_SUCCESS);
}

/* It starts later, and has more than code ever takes. */
void probe_namesake_later(void)
{
	cost("6", "4");
	use_device(0);
	NEED(left() == 64 * MIB);
	setenv("FAKEGPU_NVML_NAMESAKE", "20000", 1);
	usleep(150000);
	NEED(left() == 64 * MIB && take(60 * MIB) == CUDA_SUCCESS && book(1) == 0);
	setenv("FAKEGPU_NVML_NAMESAKE", "300", 1);
	usleep(150000);
	NEED(left() == 4 * MIB && book(1) == 0); /* once is enough to know */
}
