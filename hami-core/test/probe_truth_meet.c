/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_truth_meet.c: calls that the driver refuses half way, or carries out in part; and threads
 * that meet on one object: a stream that some record and others allocate on, a handle that some map
 * and others release.
 */
#include "probe_truth.h"

#include <stddef.h>

#define PARTS 3
#define NO_HANDLE 0x7fffffffffffULL

static uint64_t piece_bytes(struct thread *t)
{
	return (1 + truth_below(&t->random, 4)) * TRUTH_PAGE;
}

/* Handles as far as there is room for them; their number. */
static int create_some(struct thread *t, int device, uint64_t bytes,
		       CUmemGenericAllocationHandle *out)
{
	int n = 0;
	for (; n < PARTS; n++) {
		struct piece p = {
			.kind = KIND_HANDLE, .device = device, .bytes = bytes, .ask = bytes};
		if (attempt(t, &p))
			break;
		out[n] = p.handle[0];
	}
	return n;
}

static CUarrayMapInfo entry_of(CUarray array, int i, CUmemGenericAllocationHandle handle)
{
	return (CUarrayMapInfo){.resourceType = CU_RESOURCE_TYPE_ARRAY,
				.resource = {.array = array},
				.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL,
				.subresource = {.sparseLevel = {.offsetX = (unsigned int)i * 64,
								.extentWidth = 64,
								.extentHeight = 64,
								.extentDepth = 1}},
				.memOperationType = handle ? CU_MEM_OPERATION_TYPE_MAP
							   : CU_MEM_OPERATION_TYPE_UNMAP,
				.memHandle = {handle},
				.deviceBitMask = 1};
}

/* Lists of mappings and unmappings with a wrong entry at any place. */
static void map_partly(struct thread *t, int device)
{
	CUDA_ARRAY3D_DESCRIPTOR shape = {
		256, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, CUDA_ARRAY3D_SPARSE};
	CUmemGenericAllocationHandle handle[PARTS];
	CUarrayMapInfo list[PARTS + 1];
	CUarray array;
	if (via.cuArray3DCreate_v2(&array, &shape))
		fail("a sparse array is refused");
	int n = create_some(t, device, piece_bytes(t), handle);
	flight_without_ask();
	for (int round = 0; round < 3; round++) {
		int wrong = (int)truth_below(&t->random, (uint64_t)n + 1);
		for (int i = 0; i <= n; i++) {
			int unmaps = i == wrong || truth_below(&t->random, 3) == 0;
			list[i] = entry_of(array, i < PARTS ? i : 0, unmaps ? 0 : handle[i % PARTS]);
			if (i == wrong)
				list[i] = entry_of(array, 3, NO_HANDLE);
			else if (i == n && !unmaps)
				list[i] = entry_of(array, 0, 0);
		}
		if (!via.cuMemMapArrayAsync(list, (unsigned int)n + 1, t->stream[device]))
			fail("a list with a wrong entry is not refused");
	}
	for (int i = 0; i < n; i++)
		via.cuMemRelease(handle[i]);
	via.cuArrayDestroy(array);
	flight_over();
}

/* Unmaps ranges that begin and end anywhere, and in the end all that is left. */
static void unmap_partly(struct thread *t, int device)
{
	CUmemGenericAllocationHandle handle[PARTS];
	CUdeviceptr at;
	uint64_t bytes = piece_bytes(t);
	if (via.cuMemAddressReserve(&at, PARTS * bytes, 0, 0, 0))
		fail("no addresses");
	int n = create_some(t, device, bytes, handle);
	flight_without_ask();
	for (int i = 0; i < n; i++)
		if (via.cuMemMap(at + (uint64_t)i * bytes, bytes, 0, handle[i], 0) ||
		    via.cuMemRelease(handle[i]))
			fail("part %d cannot be mapped", i);
	for (int i = 0; i < 3; i++) {
		uint64_t from = truth_below(&t->random, PARTS * bytes / TRUTH_PAGE) * TRUTH_PAGE;
		uint64_t most = PARTS * bytes - from;
		via.cuMemUnmap(at + from, TRUTH_PAGE * (1 + truth_below(&t->random, most / TRUTH_PAGE)));
	}
	for (int i = 0; i < n; i++)
		via.cuMemUnmap(at + (uint64_t)i * bytes, bytes);
	via.cuMemAddressFree(at, PARTS * bytes);
	flight_over();
}

void do_partly(struct thread *t, int device)
{
	truth_below(&t->random, 2) ? map_partly(t, device) : unmap_partly(t, device);
}

/* What the threads of this worker meet on, by device. */
static struct {
	CUstream stream;
	CUmemGenericAllocationHandle handle; /* 0: none; may be released at any time */
} met[TRUTH_DEVICES];

void meet_equip(int device)
{
	if (via.cuStreamCreate(&met[device].stream, 1))
		fail("no stream");
}

void meet_end(int device)
{
	CUgraph graph;
	CUmemGenericAllocationHandle handle = __atomic_exchange_n(&met[device].handle, 0,
								  __ATOMIC_ACQ_REL);
	if (handle)
		via.cuMemRelease(handle);
	if (!via.cuStreamEndCapture(met[device].stream, &graph) && graph)
		via.cuGraphDestroy(graph);
	via.cuStreamDestroy_v2(met[device].stream);
}

static void begin_or_end_capture(struct thread *t, int device)
{
	CUgraph graph = NULL;
	flight_without_ask();
	if (truth_below(&t->random, 2))
		via.cuStreamBeginCapture_v2(met[device].stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	else if (!via.cuStreamEndCapture(met[device].stream, &graph) && graph)
		via.cuGraphDestroy(graph);
	flight_over();
}

/* What is allocated may be a graph's, and its freeing recorded: then it is freed once more. */
static void use_stream(struct thread *t, int device)
{
	struct piece p;
	draw(t, &p, KIND_ASYNC, device);
	p.stream = met[device].stream;
	if (p.bytes > 64 * MIB || attempt(t, &p))
		return;
	uint64_t asks[TRUTH_DEVICES] = {0}, most[TRUTH_DEVICES];
	asks[device] = p.ask;
	fakegpu_flight_begin(asks, TRUTH_DEVICES);
	via.cuMemFreeAsync(p.at, met[device].stream);
	via.cuMemFree_v2(p.at);
	fakegpu_flight_end(most, TRUTH_DEVICES);
}

static void replace_handle(struct thread *t, int device)
{
	CUmemGenericAllocationHandle made = 0, old;
	struct piece p = {.kind = KIND_HANDLE, .device = device, .bytes = piece_bytes(t)};
	p.ask = p.bytes;
	if (truth_below(&t->random, 4) && !attempt(t, &p))
		made = p.handle[0];
	old = __atomic_exchange_n(&met[device].handle, made, __ATOMIC_ACQ_REL);
	flight_without_ask();
	if (old && via.cuMemRelease(old))
		fail("a handle cannot be released");
	flight_over();
}

/* Maps what another thread may be releasing, and keeps it alive by another reference. */
static void use_handle(int device)
{
	CUmemGenericAllocationHandle again,
		handle = __atomic_load_n(&met[device].handle, __ATOMIC_ACQUIRE);
	CUdeviceptr at;
	if (!handle || via.cuMemAddressReserve(&at, 4 * TRUTH_PAGE, 0, 0, 0))
		return;
	flight_without_ask();
	if (!via.cuMemMap(at, TRUTH_PAGE, 0, handle, 0)) {
		int kept = !via.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at);
		if (via.cuMemUnmap(at, TRUTH_PAGE) || !kept || via.cuMemRelease(again))
			fail("what was mapped cannot be kept, unmapped and released");
	}
	via.cuMemAddressFree(at, 4 * TRUTH_PAGE);
	flight_over();
}

void meet(struct thread *t, int device)
{
	switch (truth_below(&t->random, 5)) {
	case 0: begin_or_end_capture(t, device); break;
	case 1:
	case 2: use_stream(t, device); break;
	case 3: replace_handle(t, device); break;
	default: use_handle(device);
	}
}
