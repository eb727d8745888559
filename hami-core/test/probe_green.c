/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_green.c: green contexts, and contexts that are attached and detached; a whole context takes
 * 6 MiB.
 */
#define _GNU_SOURCE
#include "probe.h"

#include <unistd.h>

#include "hamicore_abi.h"

/* The parts of the device that a green context gets: the fake takes anything. */
static CUgreenCtx enter_green(void)
{
	static int parts;
	CUgreenCtx green;
	CUcontext context;
	NEED(cuGreenCtxCreate(&green, (CUdevResourceDesc)(void *)&parts, 0, CU_GREEN_CTX_DEFAULT_STREAM) == CUDA_SUCCESS);
	NEED(cuCtxFromGreenCtx(&context, green) == CUDA_SUCCESS && cuCtxSetCurrent(context) == CUDA_SUCCESS);
	return green;
}

/*
 * Eight of them cost nothing beside the primary context, whose memory they use: it stays when they
 * go.
 */
void probe_green(void)
{
	CUgreenCtx green[8];
	setenv("FAKEGPU_CONTEXT", "6", 1);
	use_device(0);
	for (unsigned i = 0; i < 8; i++) {
		green[i] = enter_green();
		NEED(left() == (58 - 2 * i) * MIB && take(2 * MIB) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	}
	NEED(left() == 42 * MIB);
	for (int i = 0; i < 8; i++)
		NEED(cuGreenCtxDestroy(green[i]) == CUDA_SUCCESS);
	NEED(cuGreenCtxDestroy(green[0]) != CUDA_SUCCESS);
	use_device(0);
	NEED(left() == 42 * MIB);
	NEED(cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS && probe_region()->ext.reserved[0] == 0);
	green[0] = enter_green(); /* makes the primary context, and keeps it */
	NEED(left() == 58 * MIB && take(10 * MIB) == CUDA_SUCCESS);
	use_device(0);
	NEED(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS && probe_region()->ext.reserved[0] == 16 * MIB);
	NEED(cuGreenCtxDestroy(green[0]) == CUDA_SUCCESS && probe_region()->ext.reserved[0] == 0);
}

/* However many there have been, work in the next one is held to the share. */
void probe_green_held(void)
{
	CUmodule module;
	CUfunction function;
	use_device(0);
	NEED(cuModuleLoadData(&module, "x") == CUDA_SUCCESS && cuModuleGetFunction(&function, module, "work_1000us") == CUDA_SUCCESS);
	for (int i = 0; i < 70; i++) {
		CUgreenCtx green = enter_green();
		NEED(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
		NEED(cuGreenCtxDestroy(green) == CUDA_SUCCESS);
	}
	uint64_t before = probe_region()->ext.pace[0].spent_ns;
	enter_green();
	for (int i = 0; i < 30; i++)
		NEED(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	printf("    %llu us charged of 30000\n", (unsigned long long)(probe_region()->ext.pace[0].spent_ns - before) / 1000);
	NEED(probe_region()->ext.pace[0].spent_ns - before >= 10000000);
}

static uint64_t spent(void)
{
	return probe_region()->ext.pace[0].spent_ns / 1000000;
}

/* Its work is the primary context's: who waits for that one, or resets it, pays for both. */
void probe_green_settled(void)
{
	CUmodule module;
	CUfunction function;
	CUstream stream;
	CUcontext inside;
	use_device(0);
	NEED(cuModuleLoadData(&module, "x") == CUDA_SUCCESS && cuModuleGetFunction(&function, module, "work_40000us") == CUDA_SUCCESS);
	for (int made = 0; made < 2; made++) {
		uint64_t before = spent();
		CUgreenCtx green = enter_green();
		NEED(cuStreamCreate(&stream, 0) == CUDA_SUCCESS && cuStreamGetCtx(stream, &inside) == CUDA_SUCCESS);
		NEED(inside == (CUcontext)(void *)green);
		if (made) /* from a thread that the green context is not current to */
			use_device(0);
		NEED(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, made ? stream : NULL, NULL, NULL) == CUDA_SUCCESS);
		use_device(0);
		NEED(cuCtxSynchronize() == CUDA_SUCCESS);
		printf("    %llu ms charged of 40\n", (unsigned long long)(spent() - before));
		NEED(spent() - before >= 20);
		NEED(cuGreenCtxDestroy(green) == CUDA_SUCCESS);
	}
	uint64_t before = spent();
	enter_green();
	NEED(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS);
	usleep(60000);
	NEED(cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS && spent() - before >= 20);
}

/* The last detaching is a destruction. */
void probe_detached(void)
{
	CUcontext one, same;
	setenv("FAKEGPU_CONTEXT", "6", 1);
	NEED(cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&one, 0, 0) == CUDA_SUCCESS && take(10 * MIB) == CUDA_SUCCESS);
	NEED(cuCtxAttach(&same, 0) == CUDA_SUCCESS && same == one && cuCtxDetach(one) == CUDA_SUCCESS && left() == 48 * MIB);
	NEED(cuCtxDetach(one) == CUDA_SUCCESS && probe_region()->ext.reserved[0] == 0);
	NEED(cuCtxDetach(one) != CUDA_SUCCESS);
	use_device(0);
	NEED(left() == 58 * MIB && cuCtxDetach(NULL) != CUDA_SUCCESS && left() == 58 * MIB);
}

/* Contexts that the driver does not let go keep their work, which is paid when it is waited for. */
void probe_not_taken(void)
{
	CUmodule module;
	CUfunction function;
	CUcontext primary, mine;
	use_device(0);
	NEED(cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS && cuCtxCreate_v2(&mine, 0, 0) == CUDA_SUCCESS);
	for (int own = 0; own < 2; own++) {
		CUcontext of = own ? mine : primary, other = own ? primary : mine;
		uint64_t before = spent();
		NEED(cuCtxSetCurrent(of) == CUDA_SUCCESS && cuModuleLoadData(&module, "x") == CUDA_SUCCESS);
		NEED(cuModuleGetFunction(&function, module, own ? "work_41000us" : "work_40000us") == CUDA_SUCCESS);
		NEED(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS);
		NEED(cuCtxSetCurrent(other) == CUDA_SUCCESS);
		NEED((own ? cuCtxDetach(of) : cuCtxDestroy_v2(of)) != CUDA_SUCCESS);
		NEED(cuCtxSetCurrent(of) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
		printf("    %llu ms charged of 40\n", (unsigned long long)(spent() - before));
		NEED(spent() - before >= 20);
	}
	NEED(cuCtxDetach(mine) == CUDA_SUCCESS);
}

/* CUDA 13 names the context to wait for; NULL is the current one. */
void probe_waited_by_name(void)
{
	CUmodule module;
	CUfunction function;
	CUcontext mine, primary;
	NEED(cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&mine, 0, 0) == CUDA_SUCCESS && cuModuleLoadData(&module, "x") == CUDA_SUCCESS);
	NEED(cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS);
	for (int named = 0; named < 2; named++) {
		NEED(cuModuleGetFunction(&function, module, named ? "work_41000us" : "work_40000us") == CUDA_SUCCESS);
		NEED(cuCtxSetCurrent(mine) == CUDA_SUCCESS);
		NEED(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS);
		NEED(cuCtxSetCurrent(named ? primary : mine) == CUDA_SUCCESS);
		uint64_t before = spent();
		NEED(cuCtxSynchronize_v2(named ? mine : NULL) == CUDA_SUCCESS && spent() - before >= 20);
	}
}
