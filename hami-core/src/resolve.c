/* SPDX-License-Identifier: Apache-2.0 */
/* resolve.c: which function of the driver stands behind each hook. */
#define _GNU_SOURCE
#include "resolve.h"

#include <pthread.h>
#include <string.h>

#include "prim.h"

void *originals[SYMBOL_COUNT];
static void *by_proc[SYMBOL_COUNT];    /* what cuGetProcAddress gives for it, where that differs */
static int resolved[LIBRARY_COUNT];
static pthread_mutex_t resolving = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int inside __attribute__((tls_model("initial-exec")));

/* Asks the driver for the same functions its other way: some drivers give other pointers there. */
static void resolve_by_proc(void)
{
	fn_cuGetProcAddress get = (fn_cuGetProcAddress)originals[ID_cuGetProcAddress];
	for (int i = 0; get && i < SYMBOL_COUNT; i++) {
		const struct symbol *s = &symbols[i];
		void *at = NULL;
		uint64_t flags = s->per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
					       : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
		if (s->library == LIBRARY_CUDA && s->hook && get(s->base, &at, s->since, flags) == CUDA_SUCCESS)
			by_proc[i] = at;
	}
}

/*
 * The driver's own library. Where we stand in for it (we, or another copy of us), it has
 * another name, and comes with whoever stands in for it.
 */
static void *driver(enum library library)
{
	static const char *const names[] = {"libcuda.so.1", "libnvidia-ml.so.1"};
	void *handle = NULL, *any;
	if (!prim_symbol_in(driver_names[library], "", &any)) /* asked for in vain it would leave an error in dlerror */
		handle = prim_library(names[library]);
	return prim_symbol_in(driver_names[library], "", &any) ? prim_library_loaded(driver_names[library]) : handle;
}

/* Fills the originals of one library. A library that is not there yet is asked for again next time. */
static void resolve(enum library library)
{
	void *handle = driver(library);
	if (!handle)
		return;
	for (int i = 0; i < SYMBOL_COUNT; i++)
		if (symbols[i].library == library)
			__atomic_store_n(&originals[i], real_dlsym(handle, symbols[i].name), __ATOMIC_RELEASE);
	if (library == LIBRARY_CUDA)
		resolve_by_proc();
	__atomic_store_n(&resolved[library], 1, __ATOMIC_RELEASE);
}

void *original_of(enum symbol_id id)
{
	void *at = original_known(id);
	enum library library = symbols[id].library;
	if (at || inside)
		return at;
	if (__atomic_load_n(&resolved[library], __ATOMIC_ACQUIRE))
		return __atomic_load_n(&originals[id], __ATOMIC_ACQUIRE);
	inside = 1; /* the driver's start-up code may call a hook: it must not wait for itself */
	pthread_mutex_lock(&resolving);
	if (!resolved[library])
		resolve(library);
	pthread_mutex_unlock(&resolving);
	inside = 0;
	return __atomic_load_n(&originals[id], __ATOMIC_ACQUIRE);
}

void resolve_after_fork(void)
{
	pthread_mutex_init(&resolving, NULL); /* another thread of the parent may have held it */
	inside = 0;
}

int original_missing(enum symbol_id id)
{
	int loaded = __atomic_load_n(&resolved[symbols[id].library], __ATOMIC_ACQUIRE);
	if (symbols[id].library == LIBRARY_NVML)
		return loaded ? NVML_ERROR_FUNCTION_NOT_FOUND : NVML_ERROR_LIBRARY_NOT_FOUND;
	return loaded ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NOT_INITIALIZED;
}

void *hook_for(const char *base, void *original)
{
	for (int i = 0; i < SYMBOL_COUNT; i++)
		if (symbols[i].hook && (originals[i] == original || by_proc[i] == original) &&
		    !strcmp(symbols[i].base, base))
			return symbols[i].hook;
	return original;
}
