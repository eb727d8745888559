/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_sparse.c: physical memory mapped into sparse arrays. It stays taken until it is unmapped or the array goes, also
 * when its handle was released. An unmapping takes away what lies wholly in it. Alignment is not checked.
 * A list that is refused has been carried out up to the entry that is wrong; with FAKEGPU_SPARSE=whole, not at all.
 */
#include "cuda_exports.h"
#include "cuda_fake.h"

#include <stdlib.h>
#include <string.h>

struct mapped {
	CUarrayMapInfo what;
	struct physical *of;
	struct mapped *next;
};

static struct mapped *all; /* under fake.mutex */

static const void *array_of(const CUarrayMapInfo *m)
{
	return m->resourceType == CU_RESOURCE_TYPE_ARRAY ? (const void *)m->resource.array : (const void *)m->resource.mipmap;
}

static int within(unsigned long long at, unsigned long long size, unsigned long long from, unsigned long long room)
{
	return at >= from && at + size <= from + room;
}

static int covers(const CUarrayMapInfo *a, const CUarrayMapInfo *b)
{
	if (array_of(a) != array_of(b) || a->subresourceType != b->subresourceType)
		return 0;
	if (a->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL)
		return a->subresource.miptail.layer == b->subresource.miptail.layer &&
		       within(b->subresource.miptail.offset, b->subresource.miptail.size, a->subresource.miptail.offset, a->subresource.miptail.size);
#define WITHIN(offset, extent) within(b->subresource.sparseLevel.offset, b->subresource.sparseLevel.extent, \
				      a->subresource.sparseLevel.offset, a->subresource.sparseLevel.extent)
	return a->subresource.sparseLevel.level == b->subresource.sparseLevel.level && a->subresource.sparseLevel.layer == b->subresource.sparseLevel.layer &&
	       WITHIN(offsetX, extentWidth) && WITHIN(offsetY, extentHeight) && WITHIN(offsetZ, extentDepth);
}

/* Unmaps what lies in `part`, or all of an array. */
static void unmap(const CUarrayMapInfo *part, const void *array)
{
	for (struct mapped **at = &all; *at;) {
		struct mapped *m = *at;
		if (part ? !covers(part, &m->what) : array_of(&m->what) != array) {
			at = &m->next;
			continue;
		}
		*at = m->next;
		fg_handle_unmap(m->of);
		free(m);
	}
}

void fg_sparse_reset(const void *array)
{
	unmap(NULL, array);
}

/* One entry of a list (under fake.mutex). */
static CUresult apply(const CUarrayMapInfo *what)
{
	if (what->memOperationType != CU_MEM_OPERATION_TYPE_MAP) {
		unmap(what, NULL);
		return CUDA_SUCCESS;
	}
	struct physical *p = fg_handle_map(what->memHandle.memHandle);
	if (!p)
		return CUDA_ERROR_INVALID_HANDLE;
	unmap(what, NULL);
	struct mapped *m = malloc(sizeof *m);
	*m = (struct mapped){.what = *what, .of = p, .next = all};
	all = m;
	return CUDA_SUCCESS;
}

/* Whether the handles of all entries are to be found (under fake.mutex). */
static int names_handles(const CUarrayMapInfo *list, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		if (list[i].memOperationType != CU_MEM_OPERATION_TYPE_MAP)
			continue;
		struct physical *p = fg_handle_map(list[i].memHandle.memHandle);
		if (!p)
			return 0;
		fg_handle_unmap(p);
	}
	return 1;
}

static int is_refused_whole(const CUarrayMapInfo *list, unsigned int count)
{
	const char *how = getenv("FAKEGPU_SPARSE");
	return how && !strcmp(how, "whole") && !names_handles(list, count);
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
	(void)stream;
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	for (unsigned int i = 0; list && i < count; i++)
		if (!array_of(&list[i]) || list[i].memHandleType || list[i].flags ||
		    (list[i].memOperationType != CU_MEM_OPERATION_TYPE_MAP && list[i].memOperationType != CU_MEM_OPERATION_TYPE_UNMAP))
			return CUDA_ERROR_INVALID_VALUE;
	CUresult r = list ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.mutex);
	if (r == CUDA_SUCCESS && is_refused_whole(list, count))
		r = CUDA_ERROR_INVALID_HANDLE;
	for (unsigned int i = 0; r == CUDA_SUCCESS && i < count; i++)
		r = apply(&list[i]);
	pthread_mutex_unlock(&fake.mutex);
	return r;
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
	return cuMemMapArrayAsync(list, count, stream);
}
