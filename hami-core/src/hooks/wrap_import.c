/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_import.c: memory of other processes and interfaces, opened here. It is the card's
 * already: the process that made it pays for it, and if it is in this container, out of the
 * same limit. So nothing is charged; how much is open is told to monitors (VGPU_IMPORTED).
 * Shareable handles are in wrap_vmm.c.
 */
#include "context/current.h"
#include "memory/account.h"
#include "driver/resolve.h"
#include "settings/settings.h"

/* Where the calling thread's device is limited: its index, else -1. */
static int limited_device(void)
{
	return settings_gate() == GATE_LIMITED ? settings_current_device() : -1;
}

static CUresult close_import(uint64_t key, CUresult result)
{
	struct table_entry e;
	if (result == CUDA_SUCCESS && settings_gate() == GATE_LIMITED &&
	    table_use(TABLE_IMPORT, key, -1, &e) == 0)
		account_remove_uncounted(&e);
	return result;
}

CUresult hook_ipc_open(original_ipc_open original, CUdeviceptr *pointer, CUipcMemHandle handle,
		       unsigned int flags)
{
	CUdeviceptr base;
	size_t bytes;
	struct table_entry e;
	fn_cuMemGetAddressRange_v2 range = ORIGINAL(cuMemGetAddressRange_v2);
	CUresult r = original(pointer, handle, flags);
	int device = r == CUDA_SUCCESS ? limited_device() : -1;
	if (device < 0 || !range || range(&base, &bytes, *pointer) != CUDA_SUCCESS)
		return r;
	/* What is opened once more has the same address. */
	if (table_use(TABLE_IMPORT, *pointer, 1, &e) < 0)
		account_add_uncounted(TABLE_IMPORT, device, *pointer, bytes, current_context());
	return r;
}

CUresult hook_ipc_close(original_ipc_close original, CUdeviceptr pointer)
{
	return close_import(pointer, original(pointer));
}

CUresult hook_import_external(original_import_external original, CUexternalMemory *memory,
			      const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *what)
{
	CUresult r = original(memory, what);
	int device = r == CUDA_SUCCESS ? limited_device() : -1;
	if (device >= 0)
		account_add_uncounted(TABLE_IMPORT, device, (uintptr_t)*memory, what->size,
				      current_context());
	return r;
}

CUresult hook_destroy_external(original_destroy_external original, CUexternalMemory memory)
{
	return close_import((uintptr_t)memory, original(memory));
}
