/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry_wrapper.c: wraps dlsym and dlopen as profilers do. WRAPPER says how the wrapped functions
 * are found: behind this library, anywhere, or in the C library by a handle of it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#ifdef __aarch64__
#define OLDEST "GLIBC_2.17"
#else
#define OLDEST "GLIBC_2.2.5"
#endif

int entry_wrapper_calls;
void *entry_wrapper_real(void *handle, const char *name);

static void *wrapped(const char *name)
{
	const char *way = getenv("WRAPPER");
	if (!strcmp(way, "next"))
		return dlvsym(RTLD_NEXT, name, OLDEST);
	if (!strcmp(way, "anywhere"))
		return dlvsym(RTLD_DEFAULT, name, OLDEST);
	void *(*open)(const char *, int) =
		(void *(*)(const char *, int))dlvsym(RTLD_NEXT, "dlopen", OLDEST);
	return dlvsym(open("libc.so.6", RTLD_NOW), name, OLDEST);
}

/* For those that find this one first. */
void *dlsym(void *handle, const char *name)
{
	entry_wrapper_calls++;
	return entry_wrapper_real(handle, name);
}

void *entry_wrapper_real(void *handle, const char *name)
{
	return ((void *(*)(void *, const char *))wrapped("dlsym"))(handle, name);
}

void *dlopen(const char *file, int mode)
{
	entry_wrapper_calls++;
	return ((void *(*)(const char *, int))wrapped("dlopen"))(file, mode);
}
