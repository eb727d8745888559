/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/modules.h"

#include "driver/resolve.h"
#include "model/image.h"
#include "platform/prim.h"
#include "settings/settings.h"
#include "shm/region.h"

static CUresult begin_load(struct module_load *m, struct image image)
{
	m->image_bytes = image.bytes;
	m->charge = (struct charge){.device = -1};
	if (image.arrays && charge_begin(&m->charge, image.arrays))
		return m->charge.refusal;
	overhead_code_begin(&m->code);
	return CUDA_SUCCESS;
}

CUresult module_load_begin(struct module_load *m, const void *image)
{
	struct image found = {0};
	if (image && settings_gate() != GATE_OPEN)
		found = image_read((uintptr_t)image, prim_peek);
	return begin_load(m, found);
}

CUresult module_load_file_begin(struct module_load *m, const char *path)
{
	struct image found = {0};
	size_t size;
	void *at = path && settings_gate() != GATE_OPEN ? prim_map_file(path, &size) : NULL;
	if (at) {
		found = image_read((uintptr_t)at, prim_peek);
		found.bytes = found.bytes > size ? found.bytes : size;
		prim_unmap(at, size);
	}
	return begin_load(m, found);
}

void module_unload_begin(struct module_unload *u, const void *handle)
{
	u->found = table_take(TABLE_MODULE, (uintptr_t)handle, &u->arrays);
}

CUresult module_unload_end(const struct module_unload *u, CUresult result)
{
	if (u->found && (result == CUDA_SUCCESS || table_put_back(&u->arrays)))
		region_release(u->arrays.device, u->arrays.size);
	if (result == CUDA_SUCCESS)
		overhead_code_unloaded();
	return result;
}

/* Settles a load. The bytes for which it has to be undone; 0: it stands. */
static uint64_t settle_load(struct module_load *m, CUresult result, const void *handle)
{
	charge_end(&m->charge, result, TABLE_MODULE, (uintptr_t)handle);
	overhead_code_end(&m->code, result);
	return result == CUDA_SUCCESS ? overhead_code_excess(&m->code, m->image_bytes) : 0;
}

CUresult module_load_end(struct module_load *m, CUresult result, CUmodule module)
{
	struct module_unload u;
	fn_cuModuleUnload unload = ORIGINAL(cuModuleUnload);
	uint64_t excess = settle_load(m, result, module);
	if (!excess || !unload)
		return result;
	module_unload_begin(&u, module);
	module_unload_end(&u, unload(module));
	return account_refuse(m->code.device, excess);
}

CUresult library_load_end(struct module_load *m, CUresult result, CUlibrary library)
{
	struct module_unload u;
	fn_cuLibraryUnload unload = ORIGINAL(cuLibraryUnload);
	uint64_t excess = settle_load(m, result, library);
	if (!excess || !unload)
		return result;
	module_unload_begin(&u, library);
	module_unload_end(&u, unload(library));
	return account_refuse(m->code.device, excess);
}
