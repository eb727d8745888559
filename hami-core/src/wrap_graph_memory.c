/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_graph_memory.c: memory of allocation nodes in graphs. The driver reserves it when a
 * graph runs and keeps it for the next one, so what it says to have reserved is charged.
 */
#include <pthread.h>
#include <string.h>

#include "account.h"
#include "region.h"
#include "resolve.h"
#include "runtime.h"

static struct {
	pthread_mutex_t mutex;
	uint64_t charged[HAMI_DEVICES]; /* by index in the limits */
	CUdevice ordinal[HAMI_DEVICES]; /* of an index that was charged */
} graphs = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static uint64_t reserved(CUdevice ordinal)
{
	uint64_t bytes = 0;
	fn_cuDeviceGetGraphMemAttribute get = ORIGINAL(cuDeviceGetGraphMemAttribute);
	return get && get(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) == CUDA_SUCCESS ? bytes : 0;
}

/* Books what is reserved now (needs the mutex). 1 when it was more than before. */
static int settle(int device, CUdevice ordinal)
{
	uint64_t now = reserved(ordinal), before = graphs.charged[device];
	graphs.charged[device] = now;
	graphs.ordinal[device] = ordinal;
	if (now < before)
		region_release(device, before - now);
	else if (now > before)
		region_force(device, now - before);
	return now > before;
}

void account_graph_memory(CUdevice ordinal)
{
	int device = runtime_gate() == GATE_LIMITED ? runtime_device(ordinal) : -1;
	if (device < 0)
		return;
	fn_cuDeviceGraphMemTrim trim = ORIGINAL(cuDeviceGraphMemTrim);
	uint64_t limit = runtime_memory_limit(device);
	pthread_mutex_lock(&graphs.mutex);
	int more = settle(device, ordinal);
	pthread_mutex_unlock(&graphs.mutex);
	if (!more || !limit || region_used(device) <= limit || !trim || trim(ordinal) != CUDA_SUCCESS) /* unlocked: it may wait */
		return;
	pthread_mutex_lock(&graphs.mutex);
	settle(device, ordinal);
	pthread_mutex_unlock(&graphs.mutex);
}

void graph_memory_refresh(void)
{
	CUdevice current;
	fn_cuCtxGetDevice get = ORIGINAL(cuCtxGetDevice);
	if (get && get(&current) == CUDA_SUCCESS)
		account_graph_memory(current);
	pthread_mutex_lock(&graphs.mutex);
	for (int i = 0; i < HAMI_DEVICES; i++)
		if (graphs.charged[i])
			settle(i, graphs.ordinal[i]);
	pthread_mutex_unlock(&graphs.mutex);
}

CUresult hook_graph_mem_trim(original_graph_mem_trim original, CUdevice device)
{
	CUresult r = original(device);
	if (r == CUDA_SUCCESS)
		account_graph_memory(device);
	return r;
}

CUresult hook_graph_exec_destroy(original_graph_exec_destroy original, struct CUgraphExec_st *exec)
{
	CUresult r = original(exec);
	if (r == CUDA_SUCCESS && runtime_gate() == GATE_LIMITED)
		graph_memory_refresh();
	return r;
}

void graph_memory_after_fork(void)
{
	memset(&graphs, 0, sizeof graphs);
	pthread_mutex_init(&graphs.mutex, NULL); /* another thread of the parent may have held it */
}
