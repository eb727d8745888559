/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_array.c: arrays and mipmaps. The driver does not say what one takes, so it is
 * computed, and padding is missed; it is charged in whole pages.
 */
#include "account.h"
#include "array.h"
#include "limit.h"
#include "region.h"
#include "resolve.h"
#include "runtime.h"

/* Keeps the charge of a made array under its handle, or gives it back. */
static CUresult settle(const struct charge *c, CUresult result, const void *array)
{
	struct table_entry e = {.kind = TABLE_ARRAY, .device = c->device, .size = c->reserved,
				.link = c->context};
	if (c->device < 0)
		return result;
	if (result != CUDA_SUCCESS)
		return region_release(c->device, c->reserved), result;
	e.key = (uintptr_t)array;
	table_add(&e);
	return result;
}

/* Reserves for a shape; a NULL one is for the driver to refuse. Never rides free on a shared page. */
static int begin(struct charge *c, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels)
{
	uint64_t bytes = shape ? array_bytes(shape, levels) : 0;
	return charge_begin(c, bytes ? limit_pages(bytes) : 0);
}

static CUresult destroy_end(CUresult result, int found, struct table_entry *e)
{
	if (found && result == CUDA_SUCCESS)
		region_release(e->device, e->size);
	else if (found)
		table_put_back(e);
	return result;
}

CUresult hook_array_create(original_array_create original, CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape)
{
	struct charge c;
	CUDA_ARRAY3D_DESCRIPTOR full = {0};
	if (shape)
		full = (CUDA_ARRAY3D_DESCRIPTOR){shape->Width, shape->Height, 0, shape->Format, shape->NumChannels, 0};
	if (begin(&c, shape ? &full : NULL, 1))
		return c.refusal;
	CUresult r = original(array, shape);
	return settle(&c, r, r == CUDA_SUCCESS ? *array : NULL);
}

CUresult hook_array_create_v1(original_array_create_v1 original, CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *shape)
{
	struct charge c;
	CUDA_ARRAY3D_DESCRIPTOR full = {0};
	if (shape)
		full = (CUDA_ARRAY3D_DESCRIPTOR){shape->Width, shape->Height, 0, shape->Format, shape->NumChannels, 0};
	if (begin(&c, shape ? &full : NULL, 1))
		return c.refusal;
	CUresult r = original(array, shape);
	return settle(&c, r, r == CUDA_SUCCESS ? *array : NULL);
}

CUresult hook_array_create_3d(original_array_create_3d original, CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
	struct charge c;
	if (begin(&c, shape, 1))
		return c.refusal;
	CUresult r = original(array, shape);
	return settle(&c, r, r == CUDA_SUCCESS ? *array : NULL);
}

CUresult hook_array_create_3d_v1(original_array_create_3d_v1 original, CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *shape)
{
	struct charge c;
	CUDA_ARRAY3D_DESCRIPTOR full = {0};
	if (shape)
		full = (CUDA_ARRAY3D_DESCRIPTOR){shape->Width,	shape->Height,	    shape->Depth,
						 shape->Format, shape->NumChannels, shape->Flags};
	if (begin(&c, shape ? &full : NULL, 1))
		return c.refusal;
	CUresult r = original(array, shape);
	return settle(&c, r, r == CUDA_SUCCESS ? *array : NULL);
}

CUresult hook_array_destroy(original_array_destroy original, CUarray array)
{
	struct table_entry e;
	int found = table_take(TABLE_ARRAY, (uintptr_t)array, &e);
	return destroy_end(original(array), found, &e);
}

CUresult hook_mipmap_create(original_mipmap_create original, CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape,
			    unsigned int levels)
{
	struct charge c;
	if (begin(&c, shape, levels))
		return c.refusal;
	CUresult r = original(array, shape, levels);
	return settle(&c, r, r == CUDA_SUCCESS ? *array : NULL);
}

CUresult hook_mipmap_destroy(original_mipmap_destroy original, CUmipmappedArray array)
{
	struct table_entry e;
	int found = table_take(TABLE_ARRAY, (uintptr_t)array, &e);
	return destroy_end(original(array), found, &e);
}
