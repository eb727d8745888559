/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_array.c: arrays and mipmaps. The driver does not say what one takes, so it is
 * computed, and padding is missed; it is charged in whole pages.
 */
#include "memory/account.h"
#include "memory/sparse.h"
#include "model/array.h"
#include "model/limit.h"
#include "shm/region.h"
#include "driver/resolve.h"

/*
 * Reserves whole pages for a shape, so that it never rides on a shared one; a NULL shape is for the
 * driver to refuse.
 */
static int begin_charge(struct charge *c, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels)
{
	return charge_begin(c, shape ? limit_round_to_pages(array_bytes(shape, levels)) : 0);
}

/* A shape of two dimensions, from either version of the API. */
static CUDA_ARRAY3D_DESCRIPTOR shape_2d(size_t width, size_t height, int format,
					unsigned int channels)
{
	return (CUDA_ARRAY3D_DESCRIPTOR){
		.Width = width, .Height = height, .Format = format, .NumChannels = channels};
}

/* Around the destruction of an array, with what is mapped into it. */
struct array_destruction {
	int found;
	struct table_entry entry;
	struct sparse_destruction mapped;
};

static void destroy_array_begin(struct array_destruction *d, uint64_t array)
{
	sparse_destroy_begin(&d->mapped, array);
	d->found = table_take(TABLE_ARRAY, array, &d->entry);
	if (d->found)
		region_add_in_flight(d->entry.device, 1);
}

static CUresult destroy_array_end(struct array_destruction *d, CUresult result)
{
	sparse_destroy_end(&d->mapped, result == CUDA_SUCCESS);
	if (!d->found)
		return result;
	if (result == CUDA_SUCCESS || table_put_back(&d->entry))
		region_release(d->entry.device, d->entry.size);
	region_add_in_flight(d->entry.device, -1);
	return result;
}

CUresult hook_array_create(original_array_create original, CUarray *array,
			   const CUDA_ARRAY_DESCRIPTOR *shape)
{
	struct charge c;
	CUDA_ARRAY3D_DESCRIPTOR full = {0};
	if (shape)
		full = shape_2d(shape->Width, shape->Height, shape->Format, shape->NumChannels);
	if (begin_charge(&c, shape ? &full : NULL, 1))
		return c.refusal;
	CUresult r = original(array, shape);
	return charge_end(&c, r, TABLE_ARRAY, r == CUDA_SUCCESS ? (uintptr_t)*array : 0);
}

CUresult hook_array_create_v1(original_array_create_v1 original, CUarray *array,
			      const CUDA_ARRAY_DESCRIPTOR_v1 *shape)
{
	struct charge c;
	CUDA_ARRAY3D_DESCRIPTOR full = {0};
	if (shape)
		full = shape_2d(shape->Width, shape->Height, shape->Format, shape->NumChannels);
	if (begin_charge(&c, shape ? &full : NULL, 1))
		return c.refusal;
	CUresult r = original(array, shape);
	return charge_end(&c, r, TABLE_ARRAY, r == CUDA_SUCCESS ? (uintptr_t)*array : 0);
}

CUresult hook_array_create_3d(original_array_create_3d original, CUarray *array,
			      const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
	struct charge c;
	if (begin_charge(&c, shape, 1))
		return c.refusal;
	CUresult r = original(array, shape);
	return charge_end(&c, r, TABLE_ARRAY, r == CUDA_SUCCESS ? (uintptr_t)*array : 0);
}

CUresult hook_array_create_3d_v1(original_array_create_3d_v1 original, CUarray *array,
				 const CUDA_ARRAY3D_DESCRIPTOR_v1 *shape)
{
	struct charge c;
	CUDA_ARRAY3D_DESCRIPTOR full = {0};
	if (shape)
		full = (CUDA_ARRAY3D_DESCRIPTOR){shape->Width,	shape->Height,	    shape->Depth,
						 shape->Format, shape->NumChannels, shape->Flags};
	if (begin_charge(&c, shape ? &full : NULL, 1))
		return c.refusal;
	CUresult r = original(array, shape);
	return charge_end(&c, r, TABLE_ARRAY, r == CUDA_SUCCESS ? (uintptr_t)*array : 0);
}

CUresult hook_array_destroy(original_array_destroy original, CUarray array)
{
	struct array_destruction d;
	destroy_array_begin(&d, (uintptr_t)array);
	return destroy_array_end(&d, original(array));
}

CUresult hook_mipmap_create(original_mipmap_create original, CUmipmappedArray *array,
			    const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels)
{
	struct charge c;
	if (begin_charge(&c, shape, levels))
		return c.refusal;
	CUresult r = original(array, shape, levels);
	return charge_end(&c, r, TABLE_ARRAY, r == CUDA_SUCCESS ? (uintptr_t)*array : 0);
}

CUresult hook_mipmap_destroy(original_mipmap_destroy original, CUmipmappedArray array)
{
	struct array_destruction d;
	destroy_array_begin(&d, (uintptr_t)array);
	return destroy_array_end(&d, original(array));
}
