/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry_reload.c: loads the driver, takes 40 MiB and unloads it, again and again; prints each
 * answer. It is linked to none.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "cuda_abi.h"

typedef CUresult (*f_init)(unsigned);
typedef CUresult (*f_retain)(CUcontext *, CUdevice);
typedef CUresult (*f_set)(CUcontext);
typedef CUresult (*f_alloc)(CUdeviceptr *, size_t);
#define FUNCTION(type, name) ((type)dlsym(driver, name))

int main(void)
{
	for (int i = 0; i < 4; i++) {
		CUcontext context;
		CUdeviceptr at;
		void *driver = dlopen("libcuda.so.1", RTLD_NOW);
		if (!driver || FUNCTION(f_init, "cuInit")(0) ||
		    FUNCTION(f_retain, "cuDevicePrimaryCtxRetain")(&context, 0) ||
		    FUNCTION(f_set, "cuCtxSetCurrent")(context))
			return 1;
		printf("%d ", FUNCTION(f_alloc, "cuMemAlloc_v2")(&at, 40 << 20));
		dlclose(driver);
	}
	return 0;
}
