/* SPDX-License-Identifier: Apache-2.0 */
/* wrap_entry.c: the ways into the driver: cuInit and cuGetProcAddress. For dlsym see lookup.c. */
#include "driver/resolve.h"
#include "settings/settings.h"

CUresult hook_init(original_init original, unsigned int flags)
{
	settings_gate(); /* so that limits which cannot be read are told of at once */
	return original(flags);
}

/* The driver chooses the variant, by version and flags; we only swap the pointer it chose. */
static CUresult replace_with_hook(CUresult result, const char *symbol, void **pfn)
{
	if (result == CUDA_SUCCESS && symbol && pfn && *pfn && settings_gate() != GATE_OPEN)
		*pfn = resolve_hook(symbol, *pfn);
	return result;
}

CUresult hook_get_proc_address(original_get_proc_address original, const char *symbol, void **pfn,
			       int version, uint64_t flags)
{
	return replace_with_hook(original(symbol, pfn, version, flags), symbol, pfn);
}

CUresult hook_get_proc_address_v2(original_get_proc_address_v2 original, const char *symbol,
				  void **pfn, int version, uint64_t flags, int *status)
{
	return replace_with_hook(original(symbol, pfn, version, flags, status), symbol, pfn);
}
