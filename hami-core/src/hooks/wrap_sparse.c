/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_sparse.c: mapping of physical memory into sparse arrays (see sparse.h). Uses are counted
 * when the calls are made, not when the stream comes to them.
 */
#include "driver/resolve.h"
#include "memory/sparse.h"
#include "settings/settings.h"

CUresult hook_map_array(original_map_array original, CUarrayMapInfo *list, unsigned int count,
			CUstream stream)
{
	if (!list || !count || settings_gate() != GATE_LIMITED)
		return original(list, count, stream);
	struct tile **made = sparse_map_begin(list, count);
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return sparse_map_end(made, list, count, original(list, count, stream));
}
