/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_checkpoint.c: taking a process's memory off its devices and putting it back. A process that
 * is not RUNNING waits in its next call: see fg_ready. Data is not modelled, so what the caller
 * would copy is not there; it is on the device until the operation is complete.
 */
#include "cuda_exports.h"
#include "cuda_fake.h"

#include <string.h>
#include <time.h>

static struct {
	int pid; /* of an operation under way; the handle is this structure's address */
} operation;

/* The slot of a living process (needs the lock); NULL: CUDA knows none. */
static struct fg_process *process_of(int pid)
{
	fg_reap();
	for (uint64_t i = 0; i < fg_state()->high && i < FG_MAX_PROCESSES; i++)
		if (fg_state()->process[i].in_use && fg_owner((int)i) == pid)
			return &fg_state()->process[i];
	return NULL;
}

static void take_off(struct fg_process *p)
{
	memcpy(p->saved, p->used, sizeof p->saved);
	memset(p->used, 0, sizeof p->used);
	p->checkpoint = CU_PROCESS_STATE_CHECKPOINTED;
}

static CUresult put_back(struct fg_process *p, int state)
{
	for (int i = 0; i < fake.count; i++) {
		const struct fg_gpu *g = fake.gpu[i];
		if (p->saved[g->minor] > g->memory - fg_used_of(g))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memcpy(p->used, p->saved, sizeof p->used);
	for (int i = 0; i < fake.count; i++)
		fg_note_use(fake.gpu[i]->minor);
	p->checkpoint = (uint32_t)state;
	return CUDA_SUCCESS;
}

/* Runs one step on a process in a state, under the lock. */
static CUresult step(int pid, uint32_t from, CUresult (*run)(struct fg_process *, int), int argument)
{
	if (fake.status != CUDA_SUCCESS || fake.forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	fg_lock();
	struct fg_process *p = process_of(pid);
	CUresult r = !p ? CUDA_ERROR_INVALID_VALUE : p->checkpoint != from ? CUDA_ERROR_ILLEGAL_STATE : run(p, argument);
	fg_unlock();
	return r;
}

static CUresult set_state(struct fg_process *p, int state)
{
	p->checkpoint = (uint32_t)state;
	return CUDA_SUCCESS;
}

static CUresult save(struct fg_process *p, int mapped)
{
	if (mapped)
		return set_state(p, CU_PROCESS_STATE_CHECKPOINTING);
	take_off(p);
	return CUDA_SUCCESS;
}

static CUresult complete(struct fg_process *p, int unused)
{
	(void)unused;
	if (p->checkpoint == CU_PROCESS_STATE_CHECKPOINTING)
		take_off(p);
	else
		p->checkpoint = CU_PROCESS_STATE_LOCKED;
	return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessLock(int pid, void *args)
{
	(void)args;
	return step(pid, CU_PROCESS_STATE_RUNNING, set_state, CU_PROCESS_STATE_LOCKED);
}

CUresult cuCheckpointProcessUnlock(int pid, void *args)
{
	(void)args;
	return step(pid, CU_PROCESS_STATE_LOCKED, set_state, CU_PROCESS_STATE_RUNNING);
}

static void begin(int pid, void **out)
{
	operation.pid = pid;
	*out = &operation;
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
	int mapped = args && args->customStorageInfo_out;
	CUresult r = step(pid, CU_PROCESS_STATE_LOCKED, save, mapped);
	if (r == CUDA_SUCCESS && mapped)
		begin(pid, args->customStorageInfo_out);
	return r;
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
	int mapped = args && args->customStorageInfo_out;
	CUresult r = step(pid, CU_PROCESS_STATE_CHECKPOINTED, put_back,
			  mapped ? CU_PROCESS_STATE_RESTORING : CU_PROCESS_STATE_LOCKED);
	if (r == CUDA_SUCCESS && mapped)
		begin(pid, args->customStorageInfo_out);
	return r;
}

CUresult cuCheckpointOperationComplete(void *handle)
{
	if (handle != &operation || !operation.pid)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = step(operation.pid, CU_PROCESS_STATE_CHECKPOINTING, complete, 0);
	if (r == CUDA_ERROR_ILLEGAL_STATE)
		r = step(operation.pid, CU_PROCESS_STATE_RESTORING, complete, 0);
	operation.pid = 0;
	return r;
}

CUresult cuCheckpointProcessGetState(int pid, int *state)
{
	if (fake.status != CUDA_SUCCESS || fake.forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	fg_lock();
	struct fg_process *p = process_of(pid);
	if (p && state)
		*state = (int)p->checkpoint;
	fg_unlock();
	return p && state ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void fg_await_restore(void)
{
	const uint32_t *state = &fg_state()->process[fake.slot].checkpoint;
	while (__atomic_load_n(state, __ATOMIC_ACQUIRE) != CU_PROCESS_STATE_RUNNING)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}
