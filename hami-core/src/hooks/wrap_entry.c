/* SPDX-License-Identifier: Apache-2.0 */
/* wrap_entry.c: the ways into the driver: cuInit and cuGetProcAddress. For dlsym see lookup.c. */
#include "driver/resolve.h"
#include "platform/log.h"
#include "settings/settings.h"

#define TRIED 13040 /* the newest driver that hooks.def knows the functions of */
#define VERSION(v) (v) / 1000, (v) % 1000 / 10

/* Says once which drivers are known: what a newer one has added may not be limited. */
static void log_known_driver(void)
{
	static int told;
	int version = 0;
	fn_cuDriverGetVersion get = ORIGINAL(cuDriverGetVersion);
	if (settings_gate() != GATE_LIMITED || !get || get(&version) != CUDA_SUCCESS ||
	    __atomic_exchange_n(&told, 1, __ATOMIC_RELAXED))
		return;
	log_line(version > TRIED ? LOG_WARN : LOG_INFO,
		 "this library was tried with drivers up to CUDA %d.%d, and this one is of %d.%d%s",
		 VERSION(TRIED), VERSION(version),
		 version > TRIED ? ": what is new in it may take memory past the limit" : "");
}

CUresult hook_init(original_init original, unsigned int flags)
{
	settings_gate(); /* so that limits which cannot be read are told of at once */
	CUresult r = original(flags);
	if (r == CUDA_SUCCESS)
		log_known_driver();
	return r;
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
