/* SPDX-License-Identifier: Apache-2.0 */
/* probe_main.c: chooses a probe by name; what probes have in common. */
#include "probe.h"

#include <string.h>

void use_device(CUdevice device)
{
	CUcontext context;
	NEED(cuInit(0) == CUDA_SUCCESS);
	NEED(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
	NEED(cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

size_t left(void)
{
	size_t free_bytes, total;
	NEED(cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS);
	return free_bytes;
}

CUresult take(uint64_t bytes)
{
	CUdeviceptr at;
	return cuMemAlloc_v2(&at, bytes);
}

static const struct {
	const char *name;
	void (*run)(void);
} probes[] = {
#define PROBE_ENTRY(function, name) {name, probe_##function},
	PROBES(PROBE_ENTRY)
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof probes / sizeof *probes; i++)
		if (!strcmp(argv[1], probes[i].name))
			return probes[i].run(), 0;
	fprintf(stderr, "probe: unknown probe\n");
	return 2;
}
