/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_partial.c: calls that a driver carries out in part. What a real one does then is not known,
 * so the fake gives each answer in turn (FAKEGPU_SPARSE, FAKEGPU_UNMAP), and the books have to be
 * right under all of them: what the card has is never more than the limit of 64 MiB, and what it
 * has given back is to be had.
 */
#include "probe.h"

#define LIMIT (64 * MIB)
#define PIECE (8 * MIB)

uint64_t fakegpu_used(int ordinal);
uint64_t fakegpu_used_high(int ordinal);

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static void need_books(void)
{
	if (left() != LIMIT - fakegpu_used(0))
		printf("    used %llu, left %zu\n", (unsigned long long)fakegpu_used(0), left());
	NEED(fakegpu_used_high(0) <= LIMIT && left() == LIMIT - fakegpu_used(0));
}

static CUarrayMapInfo tile(CUarray array, unsigned int x, CUmemGenericAllocationHandle handle)
{
	return (CUarrayMapInfo){
		.resourceType = CU_RESOURCE_TYPE_ARRAY,
		.resource = {.array = array},
		.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL,
		.subresource = {.sparseLevel = {.offsetX = x * 64,
						.extentWidth = 64,
						.extentHeight = 64,
						.extentDepth = 1}},
		.memOperationType = handle ? CU_MEM_OPERATION_TYPE_MAP
					   : CU_MEM_OPERATION_TYPE_UNMAP,
		.memHandle = {handle},
		.deviceBitMask = 1};
}

static CUarray sparse_array(void)
{
	CUDA_ARRAY3D_DESCRIPTOR shape = {
		1024, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, CUDA_ARRAY3D_SPARSE};
	CUarray array;
	NEED(!cuArray3DCreate_v2(&array, &shape));
	return array;
}

/* Lists whose last entry names no handle: what came before it is mapped, or not. */
void probe_partial_lists(void)
{
	use_device(0);
	for (int round = 0; round < 20; round++) {
		CUarray array = sparse_array();
		for (unsigned int i = 0; i < 16; i++) {
			CUmemGenericAllocationHandle handle;
			if (cuMemCreate(&handle, PIECE, &on_device, 0)) {
				NEED(fakegpu_used(0) == LIMIT);
				break;
			}
			CUarrayMapInfo list[3] = {tile(array, i, handle), tile(array, i, 0),
						  tile(array, 15, 12345678)};
			/* mapped; mapped and unmapped again */
			if (i % 3 == 0)
				list[1] = list[2];
			NEED(cuMemMapArrayAsync(list, i % 3 ? 3 : 2, NULL) != CUDA_SUCCESS);
			NEED(!cuMemRelease(handle));
			need_books();
		}
		NEED(!cuArrayDestroy(array) && fakegpu_used(0) == 0);
		need_books();
	}
	NEED(take(LIMIT) == CUDA_SUCCESS);
}

/* The same with unmappings before the entry that is refused. */
void probe_partial_unmapped(void)
{
	CUmemGenericAllocationHandle handle;
	use_device(0);
	for (int round = 0; round < 20; round++) {
		CUarray array = sparse_array();
		for (unsigned int i = 0; i < 8; i++) {
			NEED(!cuMemCreate(&handle, PIECE, &on_device, 0));
			CUarrayMapInfo map = tile(array, i, handle);
			NEED(!cuMemMapArrayAsync(&map, 1, NULL) && !cuMemRelease(handle));
		}
		NEED(fakegpu_used(0) == LIMIT);
		for (unsigned int i = 0; i < 8; i++) {
			CUarrayMapInfo list[2] = {tile(array, i, 0), tile(array, 15, 12345678)};
			NEED(cuMemMapArrayAsync(list, 2, NULL) != CUDA_SUCCESS);
			need_books();
		}
		NEED(!cuArrayDestroy(array) && fakegpu_used(0) == 0);
		need_books();
	}
}

/* Maps three pieces side by side, whose handles are released. */
static CUdeviceptr three_pieces(void)
{
	CUdeviceptr at;
	NEED(!cuMemAddressReserve(&at, 3 * PIECE, 0, 0, 0));
	for (uint64_t i = 0; i < 3; i++) {
		CUmemGenericAllocationHandle handle;
		CUresult r = cuMemCreate(&handle, PIECE, &on_device, 0);
		if (r != CUDA_SUCCESS)
			NEED(fakegpu_used(0) > LIMIT - PIECE);
		else
			NEED(!cuMemMap(at + i * PIECE, PIECE, 0, handle, 0) && !cuMemRelease(handle));
	}
	return at;
}

/* Ranges that begin or end within a mapping: that one is left, or goes, or all is refused. */
void probe_partial_ranges(void)
{
	use_device(0);
	for (int round = 0; round < 40; round++) {
		static const uint64_t cuts[][2] = {{0, 12}, {4, 12}, {4, 20}, {0, 20}, {4, 4}, {2, 22}};
		CUdeviceptr at[3];
		for (int i = 0; i < 3; i++)
			at[i] = three_pieces();
		need_books();
		for (int i = 0; i < 3; i++) {
			const uint64_t *cut = cuts[(round + i) % 6];
			(void)cuMemUnmap(at[i] + cut[0] * MIB, cut[1] * MIB);
			need_books();
			(void)three_pieces();
			need_books();
		}
		/* all of what was reserved so far, piece by piece */
		for (CUdeviceptr a = at[0]; a < at[2] + 200 * MIB; a += PIECE / 4)
			(void)cuMemUnmap(a, PIECE);
		NEED(fakegpu_used(0) == 0);
		need_books();
	}
	NEED(take(LIMIT) == CUDA_SUCCESS);
}
