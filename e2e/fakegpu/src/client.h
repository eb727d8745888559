/* SPDX-License-Identifier: Apache-2.0 */
/* client.h: cudaclient, a CUDA program in words. See ../README.md for its steps. */
#ifndef FAKEGPU_CLIENT_H
#define FAKEGPU_CLIENT_H

#include "cuda_abi.h"

/* The driver functions the client uses, reached the way `via` says. */
struct driver {
	CUresult (*Init)(unsigned int);
	CUresult (*DeviceGetCount)(int *);
	CUresult (*DeviceGetUuid)(CUuuid *, CUdevice);
	CUresult (*DeviceGetName)(char *, int, CUdevice);
	CUresult (*DeviceTotalMem)(size_t *, CUdevice);
	CUresult (*DeviceGetAttribute)(int *, int, CUdevice);
	CUresult (*DevicePrimaryCtxRetain)(CUcontext *, CUdevice);
	CUresult (*CtxSetCurrent)(CUcontext);
	CUresult (*CtxSynchronize)(void);
	CUresult (*MemGetInfo)(size_t *, size_t *);
	CUresult (*MemAlloc)(CUdeviceptr *, size_t);
	CUresult (*MemAllocManaged)(CUdeviceptr *, size_t, unsigned int);
	CUresult (*MemAllocPitch)(CUdeviceptr *, size_t *, size_t, size_t, unsigned int);
	CUresult (*MemAllocAsync)(CUdeviceptr *, size_t, CUstream);
	CUresult (*MemFree)(CUdeviceptr);
	CUresult (*MemFreeAsync)(CUdeviceptr, CUstream);
	CUresult (*StreamSynchronize)(CUstream);
	CUresult (*ModuleLoadData)(CUmodule *, const void *);
	CUresult (*ModuleGetFunction)(CUfunction *, CUmodule, const char *);
	CUresult (*LaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
				 CUstream, void **, void **);
	CUresult (*GetErrorName)(CUresult, const char **);
};

/* Fills the table by "link", "dlsym" or "getproc". NULL, or a sentence that says what failed. */
const char *driver_reach(struct driver *d, const char *via);

#define CLIENT_MAX_BLOCKS 4096

struct client {
	struct driver driver;
	int started;   /* cuInit done */
	int has_context[64];
	int device;    /* current ordinal */
	CUresult last; /* of the last step that called the driver */
	int blocks;
	struct {
		CUdeviceptr at;
		int async, device;
	} block[CLIENT_MAX_BLOCKS];
};

/* Runs the words from words[0]; the exit code. */
int client_run(struct client *c, int count, char **words);

/* cuInit and the current device's context on first use; prints and returns the driver's refusal. */
CUresult client_start(struct client *c);
const char *client_error(struct client *c, CUresult result);

/* Seconds, on the device's clock. */
double client_now(void);
void client_rest(double seconds);

/* n kernels of 1 ms; or kernels of `ms` for so many seconds. */
CUresult work_launch(struct client *c, long n);
CUresult work_busy(struct client *c, double seconds, double ms);
/*
 * For ever, round after round: takes a block, asks for another that is beyond the limit and must be refused, runs a kernel,
 * and gives the block back. Prints how many rounds were not like that.
 */
CUresult work_churn(struct client *c, size_t fits, size_t beyond);

/* Steps that only report. */
CUresult report_info(struct client *c);
CUresult report_processes(struct client *c);
void report_environment(void);

/* Writes on in files until they take no more, and takes a lease on one until the program ends. */
void files_grow(const char *pattern);
void files_lease(const char *path);

#endif
