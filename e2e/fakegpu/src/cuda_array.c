/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_array.c: arrays of 8, 16 and 32-bit formats and their mipmaps. Each takes whole
 * pages; padding inside is not modelled. A sparse array takes nothing: see cuda_sparse.c. Deferred ones are not known.
 */
#include "cuda_exports.h"
#include "cuda_fake.h"

#include <stdlib.h>

struct array {
	uint64_t charged;
	int ordinal, mipmapped;
	const struct CUctx_st *context;
	struct array *next;
};

static struct array *arrays; /* under fake.mutex */

static uint64_t channel_bytes(int format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8: case CU_AD_FORMAT_SIGNED_INT8: return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16: case CU_AD_FORMAT_SIGNED_INT16: case CU_AD_FORMAT_HALF: return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32: case CU_AD_FORMAT_SIGNED_INT32: case CU_AD_FORMAT_FLOAT: return 4;
	default: return 0;
	}
}

/* Bytes of all levels; 0 for a shape that is refused. */
static uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR *s, unsigned int levels)
{
	uint64_t element = channel_bytes(s->Format) * s->NumChannels, sum = 0;
	uint64_t w = s->Width, h = s->Height ? s->Height : 1, d = s->Depth ? s->Depth : 1;
	if (!w || w > 1 << 17 || h > 1 << 17 || d > 1 << 14 || !levels || levels > 18)
		return 0;
	if (s->NumChannels != 1 && s->NumChannels != 2 && s->NumChannels != 4)
		return 0;
	if (s->Flags & ~(unsigned)(CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_SPARSE))
		return 0;
	for (unsigned int i = 0; i < levels; i++) {
		sum += w * h * d * element;
		w = w > 1 ? w / 2 : 1;
		h = h > 1 ? h / 2 : 1;
		d = d > 1 && !(s->Flags & ~(unsigned)CUDA_ARRAY3D_SPARSE) ? d / 2 : d;
	}
	return sum;
}

static CUresult create(struct array **out, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels, int mipmapped)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	const struct CUctx_st *context = fg_context();
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	uint64_t bytes = out && shape ? fg_pages(bytes_of(shape, levels)) : 0;
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (shape->Flags & CUDA_ARRAY3D_SPARSE)
		bytes = 0;
	struct array *a = calloc(1, sizeof *a);
	*a = (struct array){.charged = bytes, .ordinal = context->ordinal, .context = context,
			     .mipmapped = mipmapped};
	pthread_mutex_lock(&fake.mutex);
	CUresult r = fg_injected("cuArrayCreate");
	if (r == CUDA_SUCCESS && !fg_context_lives(context))
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (r == CUDA_SUCCESS)
		r = fg_take(context->ordinal, bytes);
	if (r == CUDA_SUCCESS) {
		a->next = arrays;
		arrays = *out = a;
	}
	pthread_mutex_unlock(&fake.mutex);
	if (r != CUDA_SUCCESS)
		free(a);
	return r;
}

static void release(struct array *a)
{
	fg_sparse_reset(a);
	fg_give(a->ordinal, a->charged);
	free(a);
}

static CUresult destroy(const void *handle, int mipmapped)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	pthread_mutex_lock(&fake.mutex);
	struct array **at = &arrays;
	while (*at && *at != handle)
		at = &(*at)->next;
	struct array *a = *at;
	int found = a && a->mipmapped == mipmapped;
	if (found) {
		*at = a->next;
		release(a);
	}
	pthread_mutex_unlock(&fake.mutex);
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void fg_arrays_reset(const struct CUctx_st *context)
{
	pthread_mutex_lock(&fake.mutex);
	for (struct array **at = &arrays; *at;) {
		struct array *a = *at;
		if (a->context != context) {
			at = &a->next;
			continue;
		}
		*at = a->next;
		release(a);
	}
	pthread_mutex_unlock(&fake.mutex);
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
	return create((struct array **)array, shape, 1, 0);
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *s)
{
	if (!s)
		return CUDA_ERROR_INVALID_VALUE;
	return cuArray3DCreate_v2(array, &(CUDA_ARRAY3D_DESCRIPTOR){s->Width, s->Height, s->Depth, s->Format, s->NumChannels, s->Flags});
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *s)
{
	if (!s)
		return CUDA_ERROR_INVALID_VALUE;
	return cuArray3DCreate_v2(array, &(CUDA_ARRAY3D_DESCRIPTOR){s->Width, s->Height, 0, s->Format, s->NumChannels, 0});
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *s)
{
	if (!s)
		return CUDA_ERROR_INVALID_VALUE;
	return cuArray3DCreate_v2(array, &(CUDA_ARRAY3D_DESCRIPTOR){s->Width, s->Height, 0, s->Format, s->NumChannels, 0});
}

CUresult cuArrayDestroy(CUarray array)
{
	return destroy(array, 0);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels)
{
	return create((struct array **)array, shape, levels, 1);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	return destroy(array, 1);
}
