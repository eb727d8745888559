/* SPDX-License-Identifier: Apache-2.0 */
/* probe_truth_kinds.c: what one call of the driver allocates, drawn at random, made and freed. */
#include "probe_truth.h"

#define MAX_THREADS_PER_MULTIPROCESSOR 39 /* a device attribute */
#define STACK 0				  /* the first of cuCtxSetLimit's limits */

static const uint64_t edges[] = {
	1,	  511,		512,	     513,	   MIB / 2,	MIB - 512, MIB - 1,
	MIB,	  MIB + 1,	2 * MIB - 1, 2 * MIB,	   2 * MIB + 1, 4 * MIB,   4 * MIB + 1,
	30 * MIB, 32 * MIB - 1, 32 * MIB,    32 * MIB + 1, 62 * MIB,	64 * MIB,
};
static const uint64_t giants[] = {1ULL << 40, 1ULL << 46,	(1ULL << 46) + 1,
				  1ULL << 63, UINT64_MAX - 511, UINT64_MAX};
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* All orders of magnitude up to 2^most alike. */
static uint64_t log_uniform(struct thread *t, unsigned int most)
{
	unsigned int order = (unsigned int)truth_below(&t->random, most);
	return (1ULL << order) + truth_below(&t->random, 1ULL << order);
}

static uint64_t draw_size(struct thread *t, int may_be_giant)
{
	uint64_t dice = truth_below(&t->random, 1000);
	if (board->program.sizes == 1)
		return dice < 300 ? edges[truth_below(&t->random, 8)] : log_uniform(t, 20);
	if (board->program.sizes == 2)
		return MIB + truth_below(&t->random, 3 * MIB) + 1;
	if (dice < 3 && may_be_giant)
		return giants[truth_below(&t->random, COUNT(giants))];
	if (dice < 300)
		return edges[truth_below(&t->random, COUNT(edges))];
	return dice < 600   ? log_uniform(t, 26)
	       : dice < 800 ? log_uniform(t, 20)
			    : MIB + truth_below(&t->random, 7 * MIB);
}

/* The extents of an array of about p->bytes: p->height rows of 512 bytes or more. */
static void draw_rows(struct piece *p)
{
	uint64_t rows = p->bytes / 4096 ? p->bytes / 4096 : 1;
	p->height = rows < 1 << 14 ? rows : 1 << 14;
	p->bytes = p->bytes / p->height ? p->bytes / p->height * p->height : p->height;
}

static uint64_t pitch_of(const struct piece *p)
{
	return (p->bytes / p->height + 511) / 512 * 512;
}

static CUDA_ARRAY3D_DESCRIPTOR shape_of(const struct piece *p)
{
	uint64_t depth = p->variant == 2 && p->height % 2 == 0 ? 2 : 0;
	return (CUDA_ARRAY3D_DESCRIPTOR){.Width = p->bytes / p->height,
					 .Height = depth ? p->height / 2 : p->height,
					 .Depth = depth,
					 .Format = CU_AD_FORMAT_UNSIGNED_INT8,
					 .NumChannels = 1};
}

/* All levels of a mipmap, as the fake driver adds them up. */
static uint64_t mipmap_bytes(const struct piece *p)
{
	uint64_t w = p->bytes / p->height, h = p->height, sum = 0;
	for (unsigned int i = 0; i < p->levels; i++) {
		sum += w * h;
		w = w > 1 ? w / 2 : 1;
		h = h > 1 ? h / 2 : 1;
	}
	return sum;
}

static void draw_stream(struct thread *t, struct piece *p)
{
	int other = (int)truth_below(&t->random, TRUTH_DEVICES);
	p->variant = (int)truth_below(&t->random, 2);
	p->stream = t->stream[p->kind == KIND_FROM_POOL ? other : p->device];
	p->pool = t->pool[p->device];
	if (truth_below(&t->random, 3) == 0 && bare.cuDeviceGetDefaultMemPool(&p->pool, p->device))
		fail("device %d has no pool", p->device);
	if (p->kind == KIND_ASYNC && truth_below(&t->random, 3) == 0)
		p->stream = NULL;
	p->ask = truth_granules(p->bytes);
}

/*
 * A stack is set by its size for one thread, and every thread that the device can run at once has
 * one.
 */
static void draw_stack(struct piece *p)
{
	int processors = 1, each = 1;
	if (bare.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
				      p->device) ||
	    bare.cuDeviceGetAttribute(&each, MAX_THREADS_PER_MULTIPROCESSOR, p->device))
		processors = each = 1;
	uint64_t threads = (uint64_t)processors * (uint64_t)each;
	p->bytes = (p->bytes > 64 * MIB ? 64 * MIB : p->bytes) / threads + 1;
	p->ask = truth_pages(p->bytes * threads);
}

void draw(struct thread *t, struct piece *p, enum truth_kind kind, int device)
{
	int wide = kind == KIND_PLAIN || kind == KIND_MANAGED || kind == KIND_ASYNC ||
		   kind == KIND_FROM_POOL || kind == KIND_HANDLE;
	*p = (struct piece){.kind = kind,
			    .device = device,
			    .owner = -1,
			    .height = 1,
			    .bytes = draw_size(t, wide)};
	p->variant = (int)truth_below(&t->random, 4);
	if (kind == KIND_HANDLE)
		p->bytes = p->bytes > 1ULL << 50 ? 1ULL << 50 : truth_pages(p->bytes);
	if (kind == KIND_PITCH || kind == KIND_PITCH_V1 || kind == KIND_ARRAY ||
	    kind == KIND_MIPMAP)
		draw_rows(p);
	p->ask = truth_pages(p->bytes);
	if (kind == KIND_PITCH || kind == KIND_PITCH_V1)
		p->ask = truth_pages(pitch_of(p) * p->height);
	if (kind == KIND_MIPMAP) {
		p->levels = 1 + (unsigned int)truth_below(&t->random, 8);
		p->ask = truth_pages(mipmap_bytes(p));
	}
	if (kind == KIND_ASYNC || kind == KIND_FROM_POOL)
		draw_stream(t, p);
	if (kind == KIND_LIMIT && p->variant % 3 == STACK)
		draw_stack(p);
}

static CUresult make_pitch(struct piece *p, const struct calls *c)
{
	size_t pitch;
	unsigned int pitch_v1;
	CUdeviceptr_v1 at = 0;
	if (p->kind == KIND_PITCH)
		return c->cuMemAllocPitch_v2(&p->at, &pitch, p->bytes / p->height, p->height, 4);
	CUresult r = c->cuMemAllocPitch(&at, &pitch_v1, (unsigned int)(p->bytes / p->height),
					(unsigned int)p->height, 4);
	p->at = at;
	return r;
}

static CUresult make_v1(struct piece *p, const struct calls *c)
{
	CUdeviceptr_v1 at = 0;
	CUresult r = c->cuMemAlloc(&at, (unsigned int)p->bytes);
	p->at = at;
	return r;
}

static CUresult make_pooled(struct piece *p, const struct calls *c)
{
	if (p->kind == KIND_ASYNC)
		return (p->variant ? c->cuMemAllocAsync : c->cuMemAllocAsync_ptsz)(&p->at, p->bytes,
										   p->stream);
	return (p->variant ? c->cuMemAllocFromPoolAsync
			   : c->cuMemAllocFromPoolAsync_ptsz)(&p->at, p->bytes, p->pool, p->stream);
}

static CUresult make_array(struct piece *p, const struct calls *c)
{
	CUDA_ARRAY3D_DESCRIPTOR s = shape_of(p);
	unsigned int w = (unsigned int)s.Width, h = (unsigned int)s.Height,
		     d = (unsigned int)s.Depth;
	CUarray *out = (CUarray *)&p->object;
	if (p->kind == KIND_MIPMAP)
		return c->cuMipmappedArrayCreate((CUmipmappedArray *)&p->object, &s, p->levels);
	switch (p->variant) {
	case 0:
		return c->cuArrayCreate_v2(
			out, &(CUDA_ARRAY_DESCRIPTOR){s.Width, s.Height, s.Format, 1});
	case 1: return c->cuArrayCreate(out, &(CUDA_ARRAY_DESCRIPTOR_v1){w, h, s.Format, 1});
	case 2: return c->cuArray3DCreate_v2(out, &s);
	default:
		return c->cuArray3DCreate(out,
					  &(CUDA_ARRAY3D_DESCRIPTOR_v1){w, h, d, s.Format, 1, 0});
	}
}

CUresult make(struct thread *t, struct piece *p, const struct calls *c)
{
	CUmemAllocationProp prop = {.type = 1,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, p->device}};
	CUDA_MEM_ALLOC_NODE_PARAMS node = {.bytesize = p->bytes,
					   .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							 .location = prop.location}};
	struct CUgraphNode_st *made;
	CUresult r;
	(void)t;
	switch (p->kind) {
	case KIND_PLAIN: return c->cuMemAlloc_v2(&p->at, p->bytes);
	case KIND_PLAIN_V1: return make_v1(p, c);
	case KIND_MANAGED: return c->cuMemAllocManaged(&p->at, p->bytes, CU_MEM_ATTACH_GLOBAL);
	case KIND_PITCH:
	case KIND_PITCH_V1: return make_pitch(p, c);
	case KIND_ASYNC:
	case KIND_FROM_POOL: return make_pooled(p, c);
	case KIND_ARRAY:
	case KIND_MIPMAP: return make_array(p, c);
	case KIND_HANDLE: return c->cuMemCreate(&p->handle[0], p->bytes, &prop, 0);
	case KIND_LIMIT: return c->cuCtxSetLimit(p->variant % 3, p->bytes);
	case KIND_NODE:
		r = c->cuGraphAddMemAllocNode(&made, p->object, NULL, 0, &node);
		p->at = node.dptr;
		return r;
	case KIND_LAUNCH: return c->cuGraphLaunch(p->exec, p->stream);
	default: return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult drop(struct thread *t, const struct piece *p, const struct calls *c)
{
	CUstream stream = t->stream[p->device];
	switch (p->kind) {
	case KIND_PLAIN_V1:
	case KIND_PITCH_V1: return c->cuMemFree((CUdeviceptr_v1)p->at);
	case KIND_PLAIN:
	case KIND_MANAGED:
	case KIND_PITCH: return c->cuMemFree_v2(p->at);
	case KIND_ASYNC:
	case KIND_FROM_POOL:
		if (truth_below(&t->random, 4) == 0)
			return c->cuMemFree_v2(p->at);
		return (p->variant ? c->cuMemFreeAsync : c->cuMemFreeAsync_ptsz)(p->at, stream);
	case KIND_ARRAY: return c->cuArrayDestroy(p->object);
	case KIND_MIPMAP: return c->cuMipmappedArrayDestroy(p->object);
	case KIND_HANDLE: return c->cuMemRelease(p->handle[0]);
	default: return CUDA_SUCCESS;
	}
}
