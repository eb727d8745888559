/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_sparse.c: mapping of physical memory into sparse arrays (see sparse.h). Uses are counted
 * when the calls are made, not when the stream comes to them.
 */
#include "driver/resolve.h"
#include "memory/sparse.h"
#include "settings/settings.h"

/*
 * A list that was refused may have been carried out in part; the driver does not say how far. So
 * its entries are made again one by one, up to the one that is refused: mapping the same memory to
 * the same place once more changes nothing. The number that was carried out.
 */
static unsigned int repeat_singly(original_map_array original, CUarrayMapInfo *list,
				  unsigned int count, CUstream stream)
{
	unsigned int done = 0;
	while (count > 1 && done < count && original(&list[done], 1, stream) == CUDA_SUCCESS)
		done++;
	return done;
}

CUresult hook_map_array(original_map_array original, CUarrayMapInfo *list, unsigned int count,
			CUstream stream)
{
	struct sparse_call c;
	if (!list || !count || settings_gate() != GATE_LIMITED)
		return original(list, count, stream);
	if (sparse_map_begin(&c, list, count))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = original(list, count, stream);
	unsigned int done = r == CUDA_SUCCESS ? count
					      : repeat_singly(original, list, count, stream);
	sparse_map_end(&c, done);
	return done == count ? CUDA_SUCCESS : r;
}
