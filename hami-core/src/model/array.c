/* SPDX-License-Identifier: Apache-2.0 */
#include "model/array.h"

/*
 * Bytes of one element. A format we do not know counts as 4 bytes a channel, the largest there is.
 */
static uint64_t element_bytes(int format, unsigned int channels)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return channels;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2 * (uint64_t)channels;
	default:
		if (format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_BC7_UNORM_SRGB)
			return 1; /* 8 or 16 bytes for a block of 16 elements */
		return 4 * (uint64_t)channels;
	}
}

static uint64_t at_least_one(uint64_t extent)
{
	return extent ? extent : 1;
}

/* Product, or UINT64_MAX. */
static uint64_t saturating_mul(uint64_t a, uint64_t b)
{
	uint64_t product;
	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t saturating_add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels)
{
	uint64_t width = at_least_one(shape->Width), height = at_least_one(shape->Height);
	uint64_t depth = at_least_one(shape->Depth), sum = 0;
	int layers = (shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
	if (shape->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return 0;
	for (unsigned int i = 0; i < levels && i < 64; i++) {
		uint64_t texels = saturating_mul(saturating_mul(width, height), depth);
		uint64_t each = element_bytes(shape->Format, shape->NumChannels);
		sum = saturating_add(sum, saturating_mul(texels, each));
		width = at_least_one(width / 2);
		height = at_least_one(height / 2);
		depth = layers ? depth : at_least_one(depth / 2); /* layers do not shrink */
	}
	return sum;
}
