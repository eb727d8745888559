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

static void tell_all(const char *when)
{
	const char *own = getenv("ENTRY_OWN");
	static const char *const names[] = {"cuInit", "cuMemAlloc_v2", "nvmlDeviceGetMemoryInfo"};
	for (int i = 0; i < 3; i++) {
		printf("%s, %s\n", when, names[i]);
		tell("anywhere", dlsym(RTLD_DEFAULT, names[i]));
		tell("from the program on", dlsym(RTLD_NEXT, names[i]));
		tell("from a library on", third_next(names[i]));
		tell("by the program's handle", dlsym(dlopen(NULL, RTLD_NOW), names[i]));
		tell("by a library's handle", dlsym(dlopen(own, RTLD_NOW), names[i]));
		printf("%s\n", dlerror() ? "an error" : "no error");
	}
}

int main(void)
{
	tell_all("at the start");
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	tell_all("with the driver");
	tell("by the driver's handle", dlsym(driver, "cuInit"));
	void *dependent = dlopen(getenv("PROBE_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
	void *(*find)(const char *) = (void *(*)(const char *))dlsym(dependent, "plugin_find");
	tell_all("with a library that needs it");
	tell("by its handle", dlsym(dependent, "cuInit"));
	tell("anywhere, asked by it", find("cuInit"));
	dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	tell_all("with the driver for all");
	return 0;
}
