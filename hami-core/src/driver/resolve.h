/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve.h: the driver's own functions behind our hooks. Nothing is looked up before
 * the first call of a hook; a look-up of a name by a program starts nothing.
 */
#ifndef RESOLVE_H
#define RESOLVE_H

#include "hooks.gen.h"

#define EXPORT __attribute__((visibility("default")))

enum library { LIBRARY_CUDA, LIBRARY_NVML, LIBRARY_COUNT };

struct symbol {
	const char *name;
	const char *base; /* what cuGetProcAddress is asked for */
	enum library library;
	int since;
	int per_thread;
	void *hook; /* NULL: only called by us */
};

/* Sorted by name; index is enum symbol_id. Generated. */
extern const struct symbol symbols[SYMBOL_COUNT];

/* Our own dlsym and its like, up to one without a name. Generated. */
struct lookup_function {
	const char *name;
	void *ours;
};
extern const struct lookup_function lookup_functions[];

/* By symbol; NULL: not resolved, or not there. Written by resolve.c alone. */
extern void *originals[SYMBOL_COUNT];

/* The driver's function, if it has been resolved already. */
static inline void *original_known(enum symbol_id id)
{
	return __atomic_load_n(&originals[id], __ATOMIC_ACQUIRE);
}

/*
 * The driver's function; NULL when the library or the symbol is not there. The first call for a
 * library loads it and takes the loader's lock: no lock of ours is held around it.
 */
void *original_resolve(enum symbol_id id);
static inline void *original_of(enum symbol_id id)
{
	void *known = original_known(id);
	return __builtin_expect(known != NULL, 1) ? known : original_resolve(id);
}
#define ORIGINAL(name) ((fn_##name)original_of(ID_##name))

/* Whether we have loaded the library in this very process: no lock of it is older. */
int resolve_was_loaded_here(enum library library);

/* The driver's own files where something stands in for them, by library. */
extern const char *const driver_names[LIBRARY_COUNT];

/* What a hook answers when there is no original: the library's own code for that. */
int original_missing(enum symbol_id id);

/* The hook for a pointer that the driver gave out for `base`, or the pointer itself. */
void *resolve_hook(const char *base, void *original);

/*
 * The real functions, from the C library itself; NULL as they answer, too, where they are not to be
 * found.
 */
void *lookup_real_dlsym(void *handle, const char *name);
void *lookup_real_dlvsym(void *handle, const char *name, const char *version);

#endif
