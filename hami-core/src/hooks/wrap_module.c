/* SPDX-License-Identifier: Apache-2.0 */
/* wrap_module.c: code and what a context sets aside for it: measured, charged, never refused. */
#include "memory/overhead.h"
#include "driver/resolve.h"

CUresult hook_module_load(original_module_load original, CUmodule *module, const char *path)
{
	struct code_load l;
	overhead_code_begin(&l);
	return overhead_code_end(&l, original(module, path));
}

CUresult hook_module_load_data(original_module_load_data original, CUmodule *module,
			       const void *image)
{
	struct code_load l;
	overhead_code_begin(&l);
	return overhead_code_end(&l, original(module, image));
}

CUresult hook_module_load_data_ex(original_module_load_data_ex original, CUmodule *module,
				  const void *image, unsigned int count, int *options,
				  void **values)
{
	struct code_load l;
	overhead_code_begin(&l);
	return overhead_code_end(&l, original(module, image, count, options, values));
}

CUresult hook_library_load_data(original_library_load_data original, CUlibrary *library,
				const void *code, int *jit, void **jit_values,
				unsigned int jit_count, int *options, void **values,
				unsigned int count)
{
	struct code_load l;
	overhead_code_begin(&l);
	return overhead_code_end(
		&l, original(library, code, jit, jit_values, jit_count, options, values, count));
}

CUresult hook_library_load_file(original_library_load_file original, CUlibrary *library,
				const char *path, int *jit, void **jit_values,
				unsigned int jit_count, int *options, void **values,
				unsigned int count)
{
	struct code_load l;
	overhead_code_begin(&l);
	return overhead_code_end(
		&l, original(library, path, jit, jit_values, jit_count, options, values, count));
}

CUresult hook_module_unload(original_module_unload original, CUmodule module)
{
	CUresult r = original(module);
	if (r == CUDA_SUCCESS)
		overhead_code_unloaded();
	return r;
}

CUresult hook_library_unload(original_library_unload original, CUlibrary library)
{
	CUresult r = original(library);
	if (r == CUDA_SUCCESS)
		overhead_code_unloaded();
	return r;
}
