/* SPDX-License-Identifier: Apache-2.0 */
/* entry_plugin.c: a library whose constructor uses CUDA, as some extensions of frameworks do. */
#include "probe.h"

void entry_plugin_begins(void); /* of the program */
int entry_plugin_result = -1;

__attribute__((constructor)) static void begin(void)
{
	CUcontext context;
	CUdeviceptr at;
	entry_plugin_begins();
	entry_plugin_result = cuInit(0);
	if (!entry_plugin_result)
		entry_plugin_result = cuDevicePrimaryCtxRetain(&context, 0);
	if (!entry_plugin_result)
		entry_plugin_result = cuCtxSetCurrent(context);
	if (!entry_plugin_result && cuMemAlloc_v2(&at, 66 * MIB) != CUDA_ERROR_OUT_OF_MEMORY)
		entry_plugin_result = -2;
}
