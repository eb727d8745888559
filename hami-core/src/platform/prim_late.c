/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prim_late.c: functions of the C library that are looked up when first used. They moved
 * from libpthread and libdl into libc in glibc 2.34; a reference made at link time would
 * tie libvgpu to that version, and the loader would refuse it in older containers.
 */
#define _GNU_SOURCE
#include "platform/prim.h"

#include <dlfcn.h>
#include <pthread.h>

/*
 * Not by dlsym: that takes the loader's lock, and whoever calls us here may have one of ours.
 * ThreadSanitizer has to see the locks: it wraps these functions by name.
 */
static void *libc_symbol(const char *name)
{
	static const char *const prefixes[] = {
#ifdef __SANITIZE_THREAD__
		"libtsan",
#endif
		"libc.so.", "libc-", "libpthread", "libdl", NULL};
	return prim_symbol(prefixes, name);
}

static struct {
	long long key; /* + 1; 0: not made yet */
	int (*destroy)(pthread_key_t), (*set)(pthread_key_t, const void *);
} ending;

/* The key, made by whoever is first. + 1; 0: it cannot be made. */
static long long ending_key(void (*run)(void *))
{
	pthread_key_t fresh;
	long long key = __atomic_load_n(&ending.key, __ATOMIC_ACQUIRE), none = 0;
	if (key)
		return key;
	int (*create)(pthread_key_t *, void (*)(void *)) = (int (*)(
		pthread_key_t *, void (*)(void *)))libc_symbol("pthread_key_create");
	int (*destroy)(pthread_key_t) = (int (*)(pthread_key_t))libc_symbol("pthread_key_delete");
	int (*set)(pthread_key_t, const void *) = (int (*)(pthread_key_t, const void *))libc_symbol(
		"pthread_setspecific");
	if (!create || !destroy || !set || create(&fresh, run))
		return 0;
	__atomic_store_n(&ending.destroy, destroy, __ATOMIC_RELAXED);
	__atomic_store_n(&ending.set, set, __ATOMIC_RELAXED);
	key = (long long)fresh + 1;
	if (__atomic_compare_exchange_n(&ending.key, &none, key, 0, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return key;
	destroy(fresh);
	return none;
}

void prim_at_thread_end(void (*run)(void *), void *with)
{
	/*
	 * Each namespace's C library counts keys from 0, but a thread has one table for all: ours
	 * would take the place of the program's.
	 */
	long long key = prim_in_main_namespace() ? ending_key(run) : 0;
	if (key)
		__atomic_load_n(&ending.set, __ATOMIC_RELAXED)((pthread_key_t)(key - 1), with);
}

/* Where the library is unloaded before the threads end, nothing of it may be called any more. */
__attribute__((destructor)) static void forget_ending(void)
{
	long long key = __atomic_load_n(&ending.key, __ATOMIC_ACQUIRE);
	if (key)
		ending.destroy((pthread_key_t)(key - 1));
}

void *prim_library_loaded(const char *soname)
{
	void *(*open_library)(const char *, int) =
		(void *(*)(const char *, int))libc_symbol("dlopen");
	return open_library ? open_library(soname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
}

long prim_namespace(void *(*open_in)(long, const char *, int), const char *path)
{
	Lmid_t id;
	int (*info)(void *, int, void *) = (int (*)(void *, int, void *))libc_symbol("dlinfo");
	void *handle = info ? open_in(LM_ID_NEWLM, path, RTLD_NOW) : NULL;
	return handle && info(handle, RTLD_DI_LMID, &id) == 0 ? id : -1;
}

void *prim_library(const char *soname)
{
	void *(*open_library)(const char *, int) =
		(void *(*)(const char *, int))libc_symbol("dlopen");
	if (!open_library)
		return NULL;
	void *handle = open_library(soname, RTLD_LAZY | RTLD_NOLOAD);
	return handle ? handle : open_library(soname, RTLD_LAZY | RTLD_LOCAL);
}
