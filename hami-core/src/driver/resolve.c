/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve.c: which function of the driver stands behind each hook.
 *
 * No lock of ours is held while a library is loaded or a name is looked up. Both take the
 * loader's lock, and whoever has that may be waiting for us: a library's constructor, run by
 * dlopen, may use CUDA. So threads that come at once all look the same functions up, and write
 * the same pointers.
 */
#define _GNU_SOURCE
#include "driver/resolve.h"

#include <string.h>

#include "platform/prim.h"

void *originals[SYMBOL_COUNT];
static void *by_proc[SYMBOL_COUNT];    /* what cuGetProcAddress gives for it, where that differs */
static int resolved[LIBRARY_COUNT];
static int absent[LIBRARY_COUNT]; /* has been looked for on disk, in vain */
static int loaded_in[LIBRARY_COUNT]; /* the process that we loaded it in; 0: none */
static const char *const public_names[LIBRARY_COUNT] = {"libcuda.so.1", "libnvidia-ml.so.1"};
static _Thread_local int inside __attribute__((tls_model("initial-exec")));

/* Asks the driver for the same functions its other way: some drivers give other pointers there. */
static void resolve_by_proc(void)
{
	fn_cuGetProcAddress get = (fn_cuGetProcAddress)original_known(ID_cuGetProcAddress);
	for (int i = 0; get && i < SYMBOL_COUNT; i++) {
		const struct symbol *s = &symbols[i];
		void *at = NULL;
		uint64_t flags = s->per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
					       : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
		if (s->library == LIBRARY_CUDA && s->hook &&
		    get(s->base, &at, s->since, flags) == CUDA_SUCCESS)
			__atomic_store_n(&by_proc[i], at, __ATOMIC_RELAXED);
	}
}

int resolve_was_loaded_here(enum library library)
{
	return __atomic_load_n(&loaded_in[library], __ATOMIC_ACQUIRE) == prim_pid();
}

/*
 * The driver's own library. Where we stand in for it (we, or another copy of us), it has
 * another name, and comes with whoever stands in for it.
 */
static void *open_driver(enum library library)
{
	void *handle = NULL, *any;
	/* Asked for in vain it would leave an error in dlerror */
	if (!prim_symbol_in(driver_names[library], "", &any))
		handle = prim_library(public_names[library]);
	return prim_symbol_in(driver_names[library], "", &any)
		       ? prim_library_loaded(driver_names[library])
		       : handle;
}

/*
 * Fills the originals of one library. One that is not there is found later, when the program has
 * loaded it. It is not looked for on disk again, unless there was no descriptor to find it with:
 * callers may hold a lock by then.
 */
static void resolve_library(enum library library)
{
	void *any, *handle = NULL;
	int in_vain = __atomic_load_n(&absent[library], __ATOMIC_RELAXED);
	int is_new = !prim_symbol_in(public_names[library], "", &any);
	if (!in_vain || prim_symbol_in(public_names[library], "", &any))
		handle = open_driver(library);
	if (!handle) {
		if (prim_can_open() == 0)
			__atomic_store_n(&absent[library], 1, __ATOMIC_RELAXED);
		return;
	}
	for (int i = 0; i < SYMBOL_COUNT; i++)
		if (symbols[i].library == library)
			__atomic_store_n(&originals[i], lookup_real_dlsym(handle, symbols[i].name),
					 __ATOMIC_RELEASE);
	if (library == LIBRARY_CUDA)
		resolve_by_proc();
	if (is_new)
		__atomic_store_n(&loaded_in[library], prim_pid(), __ATOMIC_RELEASE);
	__atomic_store_n(&resolved[library], 1, __ATOMIC_RELEASE);
}

/*
 * Resolves a library unless that has been done. The driver's start-up code may call a hook: it
 * finds nothing yet.
 */
static void ensure_resolved(enum library library)
{
	if (inside || __atomic_load_n(&resolved[library], __ATOMIC_ACQUIRE))
		return;
	inside = 1;
	resolve_library(library);
	inside = 0;
}

void *original_resolve(enum symbol_id id)
{
	ensure_resolved(symbols[id].library);
	return original_known(id);
}

int original_missing(enum symbol_id id)
{
	int loaded = __atomic_load_n(&resolved[symbols[id].library], __ATOMIC_ACQUIRE);
	if (symbols[id].library == LIBRARY_NVML)
		return loaded ? NVML_ERROR_FUNCTION_NOT_FOUND : NVML_ERROR_LIBRARY_NOT_FOUND;
	return loaded ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NOT_INITIALIZED;
}

void *resolve_hook(const char *base, void *original)
{
	ensure_resolved(LIBRARY_CUDA); /* another thread may have filled the tables in part */
	for (int i = 0; i < SYMBOL_COUNT; i++) {
		/*
		 * A prefix: since 12.0 cuGraphInstantiate is answered with
		 * cuGraphInstantiateWithFlags.
		 */
		if (!symbols[i].hook || strncmp(symbols[i].base, base, strlen(base)))
			continue;
		void *other_way = __atomic_load_n(&by_proc[i], __ATOMIC_RELAXED);
		if (original == original_known(i) || original == other_way)
			return symbols[i].hook;
	}
	return original;
}
