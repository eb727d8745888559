/* SPDX-License-Identifier: Apache-2.0 */
/* third.c: a library that looks names up with RTLD_NEXT, as profilers and OpenMP do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

void *third_next(const char *name);
void *third_next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* Nothing behind this library has that name; somebody in front of it would find this one. */
int third_marker(void);
int third_marker(void)
{
	return dlsym(RTLD_NEXT, "third_marker") == NULL;
}
