/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_measure.c: what the allocation nodes of a graph take. Allocations of one graph that are
 * never there at once may have the same address, and then they have the same memory: so it is the
 * union of their ranges.
 */
#include <stdlib.h>

#include "driver/resolve.h"
#include "memory/graphs.h"
#include "model/limit.h"
#include "model/location.h"
#include "settings/settings.h"

#define DEEPEST 32 /* graphs within graphs */

struct range {
	int device; /* index in the limits */
	CUdevice ordinal;
	uint64_t from, to; /* bytes, whole pages */
};

struct ranges {
	struct range *list;
	size_t count, room;
	int allocates;
};

static int add_range(struct ranges *r, int device, CUdevice ordinal, uint64_t at, uint64_t bytes)
{
	if (r->count == r->room) {
		size_t room = r->room ? 2 * r->room : 16;
		struct range *list = realloc(r->list, room * sizeof *list);
		if (!list)
			return -1;
		r->list = list;
		r->room = room;
	}
	uint64_t from = at & ~(PAGE_BYTES - 1);
	uint64_t to = from + limit_round_to_pages(at - from + bytes);
	r->list[r->count++] = (struct range){device, ordinal, from, to};
	return 0;
}

/* Memory of a device that is not in the limits gets no place, as memory of the host. */
static int add_allocation(struct ranges *r, CUgraphNode node)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p;
	fn_cuGraphMemAllocNodeGetParams get = ORIGINAL(cuGraphMemAllocNodeGetParams);
	r->allocates = 1;
	if (settings_gate() != GATE_LIMITED)
		return 0; /* devices have no index there */
	if (!get || get(node, &p) != CUDA_SUCCESS)
		return -1;
	CUdevice ordinal;
	if (location_kind_of(p.poolProps.location, &ordinal) != LOCATION_DEVICE)
		return 0;
	int device = settings_device(ordinal);
	return device < 0 ? 0 : add_range(r, device, ordinal, p.dptr, p.bytesize);
}

static int add_graph(struct ranges *r, CUgraph graph, int depth);

static int add_node(struct ranges *r, CUgraphNode node, int depth)
{
	int type;
	CUgraph child;
	fn_cuGraphNodeGetType type_of = ORIGINAL(cuGraphNodeGetType);
	fn_cuGraphChildGraphNodeGetGraph child_of = ORIGINAL(cuGraphChildGraphNodeGetGraph);
	if (!type_of || type_of(node, &type) != CUDA_SUCCESS)
		return -1;
	if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		return add_allocation(r, node);
	if (type != CU_GRAPH_NODE_TYPE_GRAPH)
		return 0;
	if (!child_of || child_of(node, &child) != CUDA_SUCCESS)
		return -1;
	return add_graph(r, child, depth + 1);
}

static int add_graph(struct ranges *r, CUgraph graph, int depth)
{
	size_t count = 0;
	fn_cuGraphGetNodes get = ORIGINAL(cuGraphGetNodes);
	if (!get || depth > DEEPEST || get(graph, NULL, &count) != CUDA_SUCCESS)
		return -1;
	CUgraphNode *nodes = calloc(count + 1, sizeof *nodes);
	int failed = !nodes || (count && get(graph, nodes, &count) != CUDA_SUCCESS);
	for (size_t i = 0; i < count && !failed; i++)
		failed = add_node(r, nodes[i], depth);
	free(nodes);
	return failed ? -1 : 0;
}

static int compare_ranges(const void *a, const void *b)
{
	const struct range *x = a, *y = b;
	if (x->device != y->device)
		return x->device - y->device;
	return x->from < y->from ? -1 : x->from > y->from;
}

int graph_measure(struct graph_need *need, CUgraph graph)
{
	struct ranges r = {0};
	*need = (struct graph_need){0};
	int failed = add_graph(&r, graph, 0), device = -1;
	uint64_t end = 0; /* of what is counted of this device */
	if (r.count)
		qsort(r.list, r.count, sizeof *r.list, compare_ranges);
	for (size_t i = 0; i < r.count; i++) {
		if (r.list[i].device != device)
			end = 0;
		device = r.list[i].device;
		need->ordinal[device] = r.list[i].ordinal;
		uint64_t from = r.list[i].from > end ? r.list[i].from : end;
		if (r.list[i].to > from)
			need->bytes[device] += r.list[i].to - from;
		end = r.list[i].to > end ? r.list[i].to : end;
		need->any = 1;
	}
	free(r.list);
	need->allocates = r.allocates;
	return failed;
}
