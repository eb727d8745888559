/* SPDX-License-Identifier: Apache-2.0 */
/* probe_import.c: memory of other processes, and memory beyond the card. */
#define _GNU_SOURCE
#include "probe.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hamicore_abi.h"

static uint64_t shown(enum vgpu_shown kind)
{
	const struct vgpu_region *r = probe_region();
	uint64_t sum = 0;
	for (int i = 0; i < r->hami.proc_num; i++)
		sum += r->ext.slot[i].shown[kind][0];
	return sum;
}

/* A child with 20 MiB that hands out a handle of them and lives until it is killed. */
static pid_t exporter(CUipcMemHandle *handle)
{
	int out[2];
	NEED(!pipe(out));
	pid_t pid = fork();
	if (pid == 0) {
		CUdeviceptr at;
		use_device(0);
		NEED(cuMemAlloc_v2(&at, 20 * MIB) == CUDA_SUCCESS && cuIpcGetMemHandle(handle, at) == CUDA_SUCCESS);
		NEED(write(out[1], handle, sizeof *handle) == sizeof *handle);
		for (;;)
			pause();
	}
	NEED(read(out[0], handle, sizeof *handle) == sizeof *handle);
	close(out[0]), close(out[1]);
	return pid;
}

/*
 * The exporter pays, once; the importer's share is as large as before, and what it has open is
 * told.
 */
void probe_imported(void)
{
	CUipcMemHandle handle;
	CUdeviceptr a, b;
	CUcontext own;
	pid_t pid = exporter(&handle);
	use_device(0);
	NEED(left() == 44 * MIB);
	NEED(cuIpcOpenMemHandle_v2(&a, handle, 1) == CUDA_SUCCESS && left() == 44 * MIB && shown(VGPU_IMPORTED) == 20 * MIB);
	NEED(cuIpcOpenMemHandle(&b, handle, 1) == CUDA_SUCCESS && b == a && shown(VGPU_IMPORTED) == 20 * MIB);
	NEED(take(46 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuIpcCloseMemHandle(a) == CUDA_SUCCESS && shown(VGPU_IMPORTED) == 20 * MIB);
	NEED(cuIpcCloseMemHandle(a) == CUDA_SUCCESS && shown(VGPU_IMPORTED) == 0);
	NEED(cuIpcCloseMemHandle(a) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuIpcOpenMemHandle_v2(NULL, handle, 1) != CUDA_SUCCESS);
	NEED(cuCtxCreate_v2(&own, 0, 0) == CUDA_SUCCESS && cuIpcOpenMemHandle_v2(&a, handle, 1) == CUDA_SUCCESS);
	NEED(shown(VGPU_IMPORTED) == 20 * MIB);
	/* it goes with its context */
	NEED(cuCtxDestroy_v2(own) == CUDA_SUCCESS && shown(VGPU_IMPORTED) == 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	NEED(left() == 64 * MIB);
	/* as the driver says */
	NEED(cuIpcOpenMemHandle_v2(&a, handle, 1) == CUDA_ERROR_INVALID_VALUE);
}

/* A handle imported from a file: told while it is mapped, charged to who made it. */
void probe_shared_handles(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle h, imported;
	CUdeviceptr at;
	int fd;
	use_device(0);
	NEED(cuMemCreate(&h, 20 * MIB, &prop, 0) == CUDA_SUCCESS);
	NEED(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
	NEED(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS);
	NEED(left() == 44 * MIB && shown(VGPU_IMPORTED) == 0);
	NEED(cuMemAddressReserve(&at, 20 * MIB, 0, 0, 0) == CUDA_SUCCESS && cuMemMap(at, 20 * MIB, 0, imported, 0) == CUDA_SUCCESS);
	NEED(left() == 44 * MIB && shown(VGPU_IMPORTED) == 20 * MIB);
	NEED(cuMemRelease(imported) == CUDA_SUCCESS && shown(VGPU_IMPORTED) == 20 * MIB);
	NEED(cuMemUnmap(at, 20 * MIB) == CUDA_SUCCESS && shown(VGPU_IMPORTED) == 0 && left() == 44 * MIB);
	NEED(cuMemRelease(h) == CUDA_SUCCESS && left() == 64 * MIB);
	NEED(cuMemImportFromShareableHandle(&imported, (void *)-1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_SUCCESS);
}

void probe_external(void)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC what = {.type = 1, .size = 100 * MIB};
	CUexternalMemory memory;
	use_device(0);
	NEED(cuImportExternalMemory(&memory, &what) == CUDA_SUCCESS && left() == 64 * MIB && shown(VGPU_IMPORTED) == 100 * MIB);
	NEED(cuDestroyExternalMemory(memory) == CUDA_SUCCESS && shown(VGPU_IMPORTED) == 0);
	NEED(cuDestroyExternalMemory(NULL) != CUDA_SUCCESS && cuImportExternalMemory(NULL, &what) != CUDA_SUCCESS);
	NEED(cuImportExternalMemory(&memory, NULL) == CUDA_ERROR_INVALID_VALUE);
}

/* 1536 MiB of a card of 1024: the rest lies in the host. */
void probe_oversubscribed(void)
{
	CUdeviceptr a, b;
	CUipcMemHandle handle;
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle h;
	size_t total;
	use_device(0);
	NEED(cuDeviceTotalMem_v2(&total, 0) == CUDA_SUCCESS && total == 1536 * MIB && left() == 1536 * MIB);
	/* the card first */
	NEED(cuMemAlloc_v2(&a, 1000 * MIB) == CUDA_SUCCESS && shown(VGPU_OVERFLOW) == 0);
	NEED(cuMemAlloc_v2(&b, 500 * MIB) == CUDA_SUCCESS && shown(VGPU_OVERFLOW) == 500 * MIB && left() == 36 * MIB);
	NEED(cuMemsetD8_v2(b, 1, 500 * MIB) == CUDA_SUCCESS);
	NEED(take(38 * MIB) == CUDA_ERROR_OUT_OF_MEMORY); /* the limit holds */
	/* handles are the card's alone */
	NEED(cuMemCreate(&h, 30 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuIpcGetMemHandle(&handle, a) == CUDA_SUCCESS && cuIpcGetMemHandle(&handle, b) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemFree_v2(b) == CUDA_SUCCESS && shown(VGPU_OVERFLOW) == 0 && left() == 536 * MIB);
	NEED(cuMemAlloc_v2(&b, 100 * MIB) == CUDA_SUCCESS && shown(VGPU_OVERFLOW) == 100 * MIB);
	/* it goes with its context */
	NEED(cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS && shown(VGPU_OVERFLOW) == 0);
}

/*
 * A share above the card's size that nobody has allowed to spill, or no device can: the card's end
 * is the end.
 */
void probe_not_oversubscribed(void)
{
	use_device(0);
	NEED(take(1000 * MIB) == CUDA_SUCCESS && take(500 * MIB) == CUDA_ERROR_OUT_OF_MEMORY && shown(VGPU_OVERFLOW) == 0);
	NEED(take(24 * MIB) == CUDA_SUCCESS);
}
