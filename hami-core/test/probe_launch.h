/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_launch.h: what the programs of limiter_test and limiter_live_test have in common: the
 * driver's functions that start work, a context, a kernel, the time. Each work_ function is one
 * program; it ends the process when what it says does not hold.
 */
#ifndef PROBE_LAUNCH_H
#define PROBE_LAUNCH_H

#include "probe.h"

#define KERNEL                                                                                     \
	(CUfunction f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,       \
	 CUstream, void **, void **)
CUresult cuLaunchKernel KERNEL;
CUresult cuLaunchKernel_ptsz KERNEL;
CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
				   unsigned, unsigned, CUstream, void **);
CUresult cuLaunchKernelEx(const CUlaunchConfig *, CUfunction, void **, void **);
CUresult cuLaunch(CUfunction);
CUresult cuLaunchGrid(CUfunction, int, int);
CUresult cuLaunchGridAsync(CUfunction, int, int, CUstream);
CUresult cuModuleLoadData(CUmodule *, const void *);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *);
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *, unsigned, unsigned);
CUresult cuStreamSynchronize(CUstream);
CUresult cuEventCreate(CUevent *, unsigned);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventSynchronize(CUevent);
CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphLaunch_ptsz(CUgraphExec, CUstream);


void use_context(void);
/* Seconds on the device's clock, which may be one of its own. */
double now(void);
void rest(double seconds);
CUresult launch(CUfunction f, CUstream stream);

/* probe_contexts.c: threads, contexts and devices that come and go. */
void work_contexts(void);
void work_devices(void);
void work_requests(void);
void work_bystanders(void);
void work_departures(void);
void work_once(void);
void work_strangers(void);
void work_together(void);
void work_blocked(void);

#endif
