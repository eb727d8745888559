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

/* Ours comes before the one in the probe program's libraries, and RTLD_NEXT from here skips it. */
int third_marker(void);
int third_marker(void)
{
	int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "third_marker");
	return next == NULL || next == third_marker ? 3 : 4;
}
