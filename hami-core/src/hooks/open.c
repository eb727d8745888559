/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c: dlopen and dlmopen, the two ways to load a library that would not find us.
 *
 * RTLD_DEEPBIND lets a library find its own dependencies before us: the flag is dropped, but for
 * NVIDIA's libraries. A new namespace (dlmopen) starts without us: we are loaded into it first,
 * and where that is impossible the library comes into the program's own. Neither is done where
 * nothing is limited. Everything else about a call, the caller's address included, reaches the C
 * library as it was: see dlopen.S.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "platform/prim.h"
#include "settings/settings.h"

__attribute__((visibility("hidden"))) void *vgpu_real_dlopen, *vgpu_real_dlmopen;
__attribute__((visibility("hidden"))) int vgpu_open_mode(const char *file, int mode, void *caller);

/* The arguments of dlmopen as dlopen.S keeps them; they can be changed. */
struct open_arguments {
	unsigned long mode;
	const char *file;
	unsigned long space;
};
__attribute__((visibility("hidden"))) void vgpu_open_in(struct open_arguments *a, void *caller);

__attribute__((constructor)) static void find_real_dlopen(void)
{
	static const char *const libc[] = {"libc.so.", "libc-", "libdl.so.", "libdl-", NULL};
	if (__atomic_load_n(&vgpu_real_dlopen, __ATOMIC_ACQUIRE))
		return;
	vgpu_real_dlmopen = prim_symbol_early(libc, "dlmopen");
	__atomic_store_n(&vgpu_real_dlopen, prim_symbol_early(libc, "dlopen"), __ATOMIC_RELEASE);
}

/* 1 when the file is loaded by the driver, or is part of it. */
static int is_loaded_by_driver(const char *file, const void *caller)
{
	return !file || prim_is_nvidia_path(file) || prim_is_nvidia(caller);
}

int vgpu_open_mode(const char *file, int mode, void *caller)
{
	find_real_dlopen();
	if (!(mode & RTLD_DEEPBIND) || is_loaded_by_driver(file, caller) ||
	    !settings_guards_loading())
		return mode;
	return mode & ~RTLD_DEEPBIND;
}

void vgpu_open_in(struct open_arguments *a, void *caller)
{
	find_real_dlopen();
	if (prim_is_nvidia(caller) || !settings_guards_loading())
		return;
	a->mode &= ~(unsigned long)RTLD_DEEPBIND;
	if ((long)a->space != LM_ID_NEWLM)
		return;
	const char *own = prim_own_path();
	long space = own && vgpu_real_dlmopen
			     ? prim_namespace((void *(*)(long, const char *, int))vgpu_real_dlmopen,
					      own)
			     : -1;
	/*
	 * where our file is no longer to be had, after chroot say, the program's own namespace
	 * has us
	 */
	a->space = (unsigned long)(space >= 0 ? space : LM_ID_BASE);
}
