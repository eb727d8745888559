/* SPDX-License-Identifier: Apache-2.0 */
/* wrap_entry.c: the ways into the driver: cuInit, cuGetProcAddress, and dlsym by name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "prim.h"
#include "resolve.h"
#include "runtime.h"

CUresult hook_init(original_init original, unsigned int flags)
{
	runtime_gate(); /* so that limits which cannot be read are told of at once */
	return original(flags);
}

/* The driver chooses the variant, by version and flags; we only swap the pointer it chose. */
static CUresult swap(CUresult result, const char *symbol, void **pfn)
{
	if (result == CUDA_SUCCESS && symbol && pfn && *pfn && runtime_gate() != GATE_OPEN)
		*pfn = hook_for(symbol, *pfn);
	return result;
}

CUresult hook_get_proc_address(original_get_proc_address original, const char *symbol, void **pfn, int version, uint64_t flags)
{
	return swap(original(symbol, pfn, version, flags), symbol, pfn);
}

CUresult hook_get_proc_address_v2(original_get_proc_address_v2 original, const char *symbol, void **pfn, int version,
				  uint64_t flags, int *status)
{
	return swap(original(symbol, pfn, version, flags, status), symbol, pfn);
}

static int is_driver_name(const char *name)
{
	return (name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z') ||
	       (!strncmp(name, "nvml", 4) && name[4] >= 'A' && name[4] <= 'Z');
}

void vgpu_find_dlsym(void);
__attribute__((visibility("hidden"))) void *vgpu_route(void *handle, const char *name, const char *version, void *caller);

/*
 * What dlsym or dlvsym (version not NULL) answers; NULL: let the real one answer.
 * A hook is given out only for a name that the asked object has, and never to the
 * driver's own libraries, which must find themselves. Starts nothing.
 */
void *vgpu_route(void *handle, const char *name, const char *version, void *caller)
{
	vgpu_find_dlsym();
	const struct symbol *s = name && is_driver_name(name) ? hooked_symbol(name) : NULL;
	if (!s || prim_is_nvidia(caller))
		return NULL;
	if (handle != RTLD_NEXT && handle != RTLD_DEFAULT &&
	    !(version ? real_dlvsym(handle, name, version) : real_dlsym(handle, name)))
		return NULL;
	return s->hook;
}
