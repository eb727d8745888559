/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_checkpoint.c: processes of the container whose memory is taken off the device and put back,
 * by one of them. While it is off, others may have it; it is put back only if there is room. What
 * is done from outside of the container is not seen: the memory stays charged.
 */
#include "driver/resolve.h"
#include "settings/components.h"
#include "settings/settings.h"
#include "shm/region.h"

#define PENDING 64

/* Processes whose memory is mapped here, for the program to copy. 0: none. */
static int pending[PENDING];

static int state_of(int pid)
{
	int state = CU_PROCESS_STATE_FAILED;
	fn_cuCheckpointProcessGetState ask = ORIGINAL(cuCheckpointProcessGetState);
	return ask && ask(pid, &state) == CUDA_SUCCESS ? state : CU_PROCESS_STATE_FAILED;
}

static void note_pending(int pid)
{
	for (int i = 0, none = 0; i < PENDING; i++, none = 0)
		if (__atomic_compare_exchange_n(&pending[i], &none, pid, 0, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED))
			return; /* without a place it stays charged */
}

CUresult hook_checkpoint_process(original_checkpoint_process original, int pid,
				 CUcheckpointCheckpointArgs *args)
{
	CUresult r = original(pid, args);
	if (r != CUDA_SUCCESS || settings_gate() != GATE_LIMITED)
		return r;
	if (state_of(pid) == CU_PROCESS_STATE_CHECKPOINTED)
		region_suspend(pid);
	else
		note_pending(pid);
	return r;
}

CUresult hook_checkpoint_complete(original_checkpoint_complete original, void *operation)
{
	CUresult r = original(operation);
	if (r != CUDA_SUCCESS || settings_gate() != GATE_LIMITED)
		return r;
	for (int i = 0; i < PENDING; i++) {
		int pid = __atomic_load_n(&pending[i], __ATOMIC_ACQUIRE);
		int state = pid ? state_of(pid) : CU_PROCESS_STATE_CHECKPOINTING;
		if (state == CU_PROCESS_STATE_CHECKPOINTING)
			continue;
		__atomic_store_n(&pending[i], 0, __ATOMIC_RELEASE);
		if (state == CU_PROCESS_STATE_CHECKPOINTED)
			region_suspend(pid);
	}
	return r;
}

/* Charges a process again. REGION_RESUMED, or another answer of region_resume. */
static enum region_resumption charge_again(int pid)
{
	uint64_t limits[HAMI_DEVICES];
	for (int i = 0; i < HAMI_DEVICES; i++)
		limits[i] = settings_memory_limit(i);
	enum region_resumption how = region_resume(pid, limits);
	for (int i = 0; i < HAMI_DEVICES && how == REGION_NO_ROOM; i++)
		if (limits[i])
			components_refresh(i);
	return how == REGION_NO_ROOM ? region_resume(pid, limits) : how;
}

CUresult hook_restore_process(original_restore_process original, int pid,
			      CUcheckpointRestoreArgs *args)
{
	if (settings_gate() != GATE_LIMITED)
		return original(pid, args);
	enum region_resumption how = charge_again(pid);
	if (how == REGION_NO_ROOM)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = original(pid, args);
	if (r != CUDA_SUCCESS && how == REGION_RESUMED)
		region_suspend(pid);
	return r;
}
