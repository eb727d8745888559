/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_vmm.c: physical handles and mappings. The driver keeps the memory until the last
 * reference and the last mapping are gone, in whatever order; so do the books. The
 * device is the one the allocation names, not the current one.
 */
#include "account.h"
#include "region.h"
#include "resolve.h"
#include "runtime.h"
#include "table.h"

#define IMPORTED 1 /* link of a handle that another process made, and pays for; its size here is 0 */

void handle_drop(uint64_t handle)
{
	struct table_entry e;
	if (table_use(TABLE_HANDLE, handle, -1, &e) == 0)
		region_release(e.device, e.size);
}

CUresult hook_mem_create(original_mem_create original, CUmemGenericAllocationHandle *handle, size_t bytes,
			 const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct charge c;
	if (!prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return original(handle, bytes, prop, flags); /* host memory is not the device's */
	if (charge_begin_on(&c, prop->location.id, bytes))
		return c.refusal;
	CUresult r = original(handle, bytes, prop, flags);
	return charge_keep(&c, r, TABLE_HANDLE, r == CUDA_SUCCESS ? *handle : 0);
}

CUresult hook_mem_release(original_mem_release original, CUmemGenericAllocationHandle handle)
{
	struct table_entry e;
	long uses = table_use(TABLE_HANDLE, handle, -1, &e); /* before the call: the driver may give the number again */
	CUresult r = original(handle);
	if (r == CUDA_SUCCESS && uses == 0) {
		region_release(e.device, e.size);
	} else if (r != CUDA_SUCCESS && uses > 0) {
		table_use(TABLE_HANDLE, handle, 1, &e);
	} else if (r != CUDA_SUCCESS && uses == 0) {
		e.uses = 1;
		table_add(&e);
	}
	return r;
}

CUresult hook_mem_retain(original_mem_retain original, CUmemGenericAllocationHandle *handle, void *address)
{
	struct table_entry e;
	CUresult r = original(handle, address);
	if (r == CUDA_SUCCESS)
		table_use(TABLE_HANDLE, *handle, 1, &e);
	return r;
}

/* The driver does not tell the size of an imported handle: it is told by its mappings. */
CUresult hook_import_handle(original_import_handle original, CUmemGenericAllocationHandle *handle, void *shared, int type)
{
	struct table_entry e;
	CUmemAllocationProp prop = {.location = {.type = 0}};
	fn_cuMemGetAllocationPropertiesFromHandle ask = ORIGINAL(cuMemGetAllocationPropertiesFromHandle);
	CUresult r = original(handle, shared, type);
	if (r != CUDA_SUCCESS || runtime_gate() != GATE_LIMITED || table_use(TABLE_HANDLE, *handle, 1, &e) > 0)
		return r; /* where it is one of our own, that has one reference more */
	if (!ask || ask(&prop, *handle) != CUDA_SUCCESS || prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return r;
	int device = runtime_device(prop.location.id);
	if (device >= 0) {
		e = (struct table_entry){.kind = TABLE_HANDLE, .device = device, .key = *handle, .link = IMPORTED, .uses = 1};
		table_add(&e);
	}
	return r;
}

CUresult hook_mem_map(original_mem_map original, CUdeviceptr pointer, size_t bytes, size_t offset,
		      CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct table_entry e, mapping = {.kind = TABLE_MAPPING, .key = pointer, .size = bytes, .link = handle};
	int known = table_use(TABLE_HANDLE, handle, 1, &e) > 0; /* before the call: a release may run beside it */
	CUresult r = original(pointer, bytes, offset, handle, flags);
	if (known && r == CUDA_SUCCESS) {
		table_add(&mapping);
		if (table_get(TABLE_HANDLE, handle, &e) && e.link == IMPORTED)
			account_show(TABLE_IMPORT, e.device, pointer, bytes, NULL);
	} else if (known) {
		handle_drop(handle);
	}
	return r;
}

/* A range may hold several mappings, each wholly. */
CUresult hook_mem_unmap(original_mem_unmap original, CUdeviceptr pointer, size_t bytes)
{
	CUresult r = original(pointer, bytes);
	struct table_entry mapping, import;
	for (uint64_t at = pointer; r == CUDA_SUCCESS && at - pointer < bytes; at += mapping.size) {
		if (!table_take(TABLE_MAPPING, at, &mapping) || !mapping.size)
			break;
		if (table_take(TABLE_IMPORT, at, &import))
			account_shown_gone(&import);
		handle_drop(mapping.link);
	}
	return r;
}
