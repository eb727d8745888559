/* SPDX-License-Identifier: Apache-2.0 */
#include "context/primary.h"

#include <string.h>

#include "driver/resolve.h"

#define ORDINALS 64 /* devices whose primary context is remembered */

static CUcontext primary[ORDINALS]; /* by CUDA ordinal */
static int references[ORDINALS];
static unsigned generation[ORDINALS];

static int is_kept(CUdevice device)
{
	return device >= 0 && device < ORDINALS;
}

CUcontext primary_of(CUdevice device)
{
	return is_kept(device) ? __atomic_load_n(&primary[device], __ATOMIC_ACQUIRE) : NULL;
}

void primary_remember(CUdevice device, CUcontext context)
{
	if (is_kept(device))
		__atomic_store_n(&primary[device], context, __ATOMIC_RELEASE);
}

int primary_add_references(CUdevice device, int change)
{
	return is_kept(device) ? __atomic_add_fetch(&references[device], change, __ATOMIC_ACQ_REL)
			       : 0;
}

unsigned primary_generation(CUdevice device)
{
	return is_kept(device) ? __atomic_load_n(&generation[device], __ATOMIC_ACQUIRE) : 0;
}

void primary_bump_generation(CUdevice device)
{
	if (is_kept(device))
		__atomic_add_fetch(&generation[device], 1, __ATOMIC_ACQ_REL);
}

int primary_is_active(CUdevice device)
{
	unsigned int flags;
	int active = 1;
	fn_cuDevicePrimaryCtxGetState state = ORIGINAL(cuDevicePrimaryCtxGetState);
	return !state || state(device, &flags, &active) != CUDA_SUCCESS || active;
}

CUcontext primary_query(CUdevice device)
{
	CUcontext context = NULL;
	fn_cuDevicePrimaryCtxRetain retain = ORIGINAL(cuDevicePrimaryCtxRetain);
	fn_cuDevicePrimaryCtxRelease_v2 release = ORIGINAL(cuDevicePrimaryCtxRelease_v2);
	if (!retain || !release || retain(&context, device) != CUDA_SUCCESS)
		return NULL;
	release(device);
	primary_remember(device, context);
	return context;
}

int primary_includes(CUcontext context)
{
	int found = 0;
	/*
	 * One that has gone may have left its address to another context: ask whether it is active.
	 */
	for (CUdevice i = 0; i < ORDINALS && !found; i++)
		found = context && primary_of(i) == context && primary_is_active(i);
	return found;
}

void primary_after_fork(void)
{
	memset(primary, 0, sizeof primary);
	memset(references, 0, sizeof references);
}
