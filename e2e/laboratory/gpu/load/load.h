/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.h: cudaload, the CUDA program that the GPU suite drives. It reads one command a line and answers
 * each with one line "= key=value ...", or "= error what=...". It needs nothing but libcuda.so.1: kernels
 * are PTX texts. Every command measures and none judges.
 */
#ifndef GPU_LOAD_H
#define GPU_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"

#define MIB (1ULL << 20)

struct load {
	const char *uuid; /* of the device, for NVML; NULL: the first one */
	CUdevice device;
	CUcontext context;
	CUmodule module;
	int started;
};

/* A command: words[0] is its name. It prints its answer. */
typedef void command(struct load *l, int count, char **words);

command load_info, load_identity, load_fill, load_alloc, load_free, load_physical;
command load_pool_open, load_pool_fill, load_pool_rounds, load_pool_close;
command load_work, load_trace, load_calibrate, load_rounds;
command load_pin, load_launch, load_pairs, load_events, load_runtime, load_runtime_launch;
command load_nvml, load_watch;
command load_decode_prepare, load_decode_start, load_decode_stop;

/* The device's context, made at the first call. 0, or -1 after an error was answered. */
int load_start(struct load *l);

/* Answers "= error what=<what> code=<r>" unless r is success; 1 when it did. */
int load_failed(const char *what, CUresult r);

/* The number in words[i]; `otherwise` when there is none. */
double load_number(int count, char **words, int i, double otherwise);

/* Bytes in use as cuMemGetInfo tells them: total less free. */
uint64_t load_used(void);

double load_seconds(void); /* of the monotonic clock */

/* A kernel of the PTX module; NULL after an error was answered. */
CUfunction load_kernel(struct load *l, const char *name);
extern const char load_ptx[];

/* What stands for a token in decode.c: load_ready once for each of the two ways, 0 or -1 after an
 * error was answered, then load_token, which waits for it. */
int load_ready(struct load *l, int is_graph);
CUresult load_token(int is_graph, double *device_ms);

/* Nanoseconds of each of `count` bursts, sorted; their quantile q from 0 to 1. */
void load_sort(double *values, int count);
double load_quantile(const double *sorted, int count, double q);

#endif
