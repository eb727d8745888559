/* SPDX-License-Identifier: Apache-2.0 */
/*
 * modules.h: code that a program loads, and the arrays in it (`__device__`). Arrays are data: where
 * the image says their size they are charged before the driver is asked, and refused. What the
 * image does not say NVML tells afterwards: loads that take much more than the image explains are
 * undone and refused when they exceed the limit. Code itself is charged and never refused.
 * Thread-safe.
 */
#ifndef MODULES_H
#define MODULES_H

#include "cuda_abi.h"
#include "memory/account.h"
#include "memory/overhead.h"

/* Around a call that loads code. */
struct module_load {
	struct charge charge; /* of its arrays */
	struct code_load code;
	uint64_t image_bytes;
};
/* Not CUDA_SUCCESS: refused, and nothing more is to be done. */
CUresult module_load_begin(struct module_load *m, const void *image);
CUresult module_load_file_begin(struct module_load *m, const char *path);
CUresult module_load_end(struct module_load *m, CUresult result, CUmodule module);
CUresult library_load_end(struct module_load *m, CUresult result, CUlibrary library);

/* Around its unloading. */
struct module_unload {
	int found;
	struct table_entry arrays;
};
void module_unload_begin(struct module_unload *u, const void *handle);
CUresult module_unload_end(const struct module_unload *u, CUresult result);

#endif
