/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry_names.c: prints in which object each way to look a driver's name up ends, by the name of
 * its file; libvgpu.so counts as the driver's. With IN_PROGRAM the program has a cuInit of its
 * own.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef IN_PROGRAM
int cuInit(unsigned int flags);
int cuInit(unsigned int flags)
{
	return 4712 + (int)flags;
}
#endif

void *third_next(const char *name);

static void tell(const char *way, void *at)
{
	Dl_info info = {.dli_fname = "nowhere"};
	if (at)
		dladdr(at, &info);
	const char *slash = strrchr(info.dli_fname, '/');
	const char *file = slash ? slash + 1 : info.dli_fname;
	int drivers = !strcmp(file, "libvgpu.so") || strstr(file, "libcuda");
	printf("%s: %s\n", way, drivers ? "the driver" : file);
}

int main(void)
{
	const char *own = getenv("ENTRY_OWN"), *dependent = getenv("PROBE_PLUGIN");
	static const char *const names[] = {"cuInit", "cuMemAlloc_v2"};
	for (int i = 0; i < 2; i++) {
		tell(names[i], dlsym(RTLD_DEFAULT, names[i]));
		tell("from the program on", dlsym(RTLD_NEXT, names[i]));
		tell("from a library on", third_next(names[i]));
		tell("by the program's handle", dlsym(dlopen(NULL, RTLD_NOW), names[i]));
		tell("by the driver's handle", dlsym(dlopen("libcuda.so.1", RTLD_NOW), names[i]));
		tell("by a library's handle", dlsym(dlopen(own, RTLD_NOW), names[i]));
		tell("by a dependent's handle", dlsym(dlopen(dependent, RTLD_NOW), names[i]));
	}
	return 0;
}
