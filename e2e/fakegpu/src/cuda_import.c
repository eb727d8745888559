/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_import.c: memory of other processes (IPC handles, external memory), and advice about managed
 * memory. What is imported takes nothing of the device: it is there already.
 */
#include "cuda_exports.h"
#include "cuda_fake.h"

#include <stdlib.h>
#include <string.h>

/* What an IPC handle says. The slot must be that of a living process, and of another one. */
struct ipc {
	uint64_t magic, at, size;
	int minor, slot;
};
#define IPC_MAGIC 0x435049474bULL

struct opened {
	CUdeviceptr at;
	struct ipc what;
	int references;
	struct opened *next;
};
static struct opened *opened; /* under fake.mutex, like all below */
static uint64_t next_address = 0x7c0000000000ULL;

struct CUextMemory_st {
	uint64_t size;
};

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
	CUdeviceptr at = 0;
	uint64_t size = 0;
	int managed, found = fg_ready() == CUDA_SUCCESS && fg_block(pointer, &at, &size, &managed);
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	pthread_mutex_lock(&fake.mutex);
	for (struct opened *o = opened; o && !found; o = o->next)
		if (pointer >= o->at && pointer - o->at < o->what.size) {
			at = o->at;
			size = o->what.size;
			found = 1;
		}
	pthread_mutex_unlock(&fake.mutex);
	if (!found)
		return CUDA_ERROR_INVALID_VALUE;
	if (base)
		*base = at;
	if (bytes)
		*bytes = size;
	return CUDA_SUCCESS;
}

/* Managed memory has no handle, nor has pooled memory. */
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
	struct ipc what = {.magic = IPC_MAGIC, .slot = fake.slot};
	CUdeviceptr base;
	int managed;
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (fg_current() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!handle || !fg_block(pointer, &base, &what.size, &managed) || managed)
		return CUDA_ERROR_INVALID_VALUE;
	what.at = base;
	what.minor = fake.gpu[fg_current()]->minor;
	memset(handle, 0, sizeof *handle);
	memcpy(handle, &what, sizeof what);
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)
{
	struct ipc what;
	memcpy(&what, &handle, sizeof what);
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (fg_current() < 0 || what.slot == fake.slot)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!pointer || flags > 1 || what.magic != IPC_MAGIC || what.minor != fake.gpu[fg_current()]->minor)
		return CUDA_ERROR_INVALID_VALUE;
	fg_lock();
	int alive = fg_owner(what.slot) >= 0;
	fg_unlock();
	if (!alive)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.mutex);
	struct opened *o = opened;
	while (o && memcmp(&o->what, &what, sizeof what))
		o = o->next;
	if (!o) {
		o = calloc(1, sizeof *o);
		*o = (struct opened){.at = next_address, .what = what, .next = opened};
		next_address += fg_pages(what.size) + FG_PAGE;
		opened = o;
	}
	o->references++;
	*pointer = o->at;
	pthread_mutex_unlock(&fake.mutex);
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)
{
	return cuIpcOpenMemHandle_v2(pointer, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	pthread_mutex_lock(&fake.mutex);
	struct opened **at = &opened, *o;
	while (*at && (*at)->at != pointer)
		at = &(*at)->next;
	o = *at;
	if (o && --o->references == 0) {
		*at = o->next;
		free(o);
	}
	pthread_mutex_unlock(&fake.mutex);
	return o ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *what)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (fg_current() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!memory || !what || !what->size || what->type < 1 || what->type > 8)
		return CUDA_ERROR_INVALID_VALUE;
	*memory = calloc(1, sizeof **memory);
	(*memory)->size = what->size;
	return CUDA_SUCCESS;
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
	if (!memory)
		return CUDA_ERROR_INVALID_HANDLE;
	free(memory);
	return CUDA_SUCCESS;
}

/* Advice is for managed memory; a place is a device or the host (-1). */
static CUresult advised(CUdeviceptr pointer, size_t bytes, CUdevice device)
{
	CUdeviceptr base;
	uint64_t size;
	int managed;
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (device != -1 && !fg_gpu(device))
		return CUDA_ERROR_INVALID_DEVICE;
	return bytes && fg_block(pointer, &base, &size, &managed) && managed && bytes <= size - (pointer - base) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUdevice device_at(CUmemLocation where)
{
	return where.type == CU_MEM_LOCATION_TYPE_DEVICE ? where.id : -1;
}

CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, int advice, CUdevice device)
{
	return advice < 1 || advice > 6 ? CUDA_ERROR_INVALID_VALUE : advised(pointer, bytes, device);
}

CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, int advice, CUmemLocation where)
{
	return cuMemAdvise(pointer, bytes, advice, device_at(where));
}

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream)
{
	(void)stream;
	return advised(pointer, bytes, device);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream)
{
	return cuMemPrefetchAsync(pointer, bytes, device, stream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t bytes, CUmemLocation where, unsigned int flags, CUstream stream)
{
	return flags ? CUDA_ERROR_INVALID_VALUE : cuMemPrefetchAsync(pointer, bytes, device_at(where), stream);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr pointer, size_t bytes, CUmemLocation where, unsigned int flags, CUstream stream)
{
	return cuMemPrefetchAsync_v2(pointer, bytes, where, flags, stream);
}
