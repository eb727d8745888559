/* SPDX-License-Identifier: Apache-2.0 */
/* wrap_module.c: code that is loaded and unloaded (see modules.h). */
#include "driver/resolve.h"
#include "memory/modules.h"

CUresult hook_module_load(original_module_load original, CUmodule *module, const char *path)
{
	struct module_load m;
	CUresult r = module_load_file_begin(&m, path);
	if (r != CUDA_SUCCESS)
		return r;
	r = original(module, path);
	return module_load_end(&m, r, r == CUDA_SUCCESS ? *module : NULL);
}

CUresult hook_module_load_data(original_module_load_data original, CUmodule *module,
			       const void *image)
{
	struct module_load m;
	CUresult r = module_load_begin(&m, image);
	if (r != CUDA_SUCCESS)
		return r;
	r = original(module, image);
	return module_load_end(&m, r, r == CUDA_SUCCESS ? *module : NULL);
}

CUresult hook_module_load_data_ex(original_module_load_data_ex original, CUmodule *module,
				  const void *image, unsigned int count, int *options,
				  void **values)
{
	struct module_load m;
	CUresult r = module_load_begin(&m, image);
	if (r != CUDA_SUCCESS)
		return r;
	r = original(module, image, count, options, values);
	return module_load_end(&m, r, r == CUDA_SUCCESS ? *module : NULL);
}

CUresult hook_library_load_data(original_library_load_data original, CUlibrary *library,
				const void *code, int *jit, void **jit_values,
				unsigned int jit_count, int *options, void **values,
				unsigned int count)
{
	struct module_load m;
	CUresult r = module_load_begin(&m, code);
	if (r != CUDA_SUCCESS)
		return r;
	r = original(library, code, jit, jit_values, jit_count, options, values, count);
	return library_load_end(&m, r, r == CUDA_SUCCESS ? *library : NULL);
}

CUresult hook_library_load_file(original_library_load_file original, CUlibrary *library,
				const char *path, int *jit, void **jit_values,
				unsigned int jit_count, int *options, void **values,
				unsigned int count)
{
	struct module_load m;
	CUresult r = module_load_file_begin(&m, path);
	if (r != CUDA_SUCCESS)
		return r;
	r = original(library, path, jit, jit_values, jit_count, options, values, count);
	return library_load_end(&m, r, r == CUDA_SUCCESS ? *library : NULL);
}

CUresult hook_module_unload(original_module_unload original, CUmodule module)
{
	struct module_unload u;
	module_unload_begin(&u, module);
	return module_unload_end(&u, original(module));
}

CUresult hook_library_unload(original_library_unload original, CUlibrary library)
{
	struct module_unload u;
	module_unload_begin(&u, library);
	return module_unload_end(&u, original(library));
}
