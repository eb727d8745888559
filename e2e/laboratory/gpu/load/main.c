/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: the loop that reads commands, and what all of them need. */
#define _GNU_SOURCE
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_WORDS 32

CUresult cuInit(unsigned int flags);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);

static const struct {
	const char *name;
	command *run;
} commands[] = {
	{"info", load_info}, {"identity", load_identity}, {"fill", load_fill}, {"alloc", load_alloc},
	{"free", load_free}, {"physical", load_physical},
	{"pool-open", load_pool_open}, {"pool-fill", load_pool_fill}, {"pool-rounds", load_pool_rounds},
	{"pool-close", load_pool_close},
	{"work", load_work}, {"trace", load_trace}, {"calibrate", load_calibrate}, {"rounds", load_rounds},
	{"pin", load_pin}, {"launch", load_launch}, {"pairs", load_pairs}, {"events", load_events},
	{"runtime", load_runtime}, {"runtime-launch", load_runtime_launch},
	{"nvml", load_nvml}, {"watch", load_watch},
	{"prepare", load_decode_prepare}, {"start", load_decode_start}, {"stop", load_decode_stop},
};

double load_seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

double load_number(int count, char **words, int i, double otherwise)
{
	return i < count ? strtod(words[i], NULL) : otherwise;
}

int load_failed(const char *what, CUresult r)
{
	if (r != CUDA_SUCCESS)
		printf("= error what=%s code=%d\n", what, r);
	return r != CUDA_SUCCESS;
}

int load_start(struct load *l)
{
	if (l->started)
		return 0;
	if (load_failed("cuInit", cuInit(0)) || load_failed("cuDeviceGet", cuDeviceGet(&l->device, 0)) ||
	    load_failed("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&l->context, l->device)) ||
	    load_failed("cuCtxSetCurrent", cuCtxSetCurrent(l->context)))
		return -1;
	l->started = 1;
	return 0;
}

CUfunction load_kernel(struct load *l, const char *name)
{
	CUfunction f = NULL;
	if (load_start(l))
		return NULL;
	if (!l->module && load_failed("cuModuleLoadData", cuModuleLoadData(&l->module, load_ptx)))
		return NULL;
	return load_failed(name, cuModuleGetFunction(&f, l->module, name)) ? NULL : f;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

void load_sort(double *values, int count)
{
	qsort(values, (size_t)count, sizeof *values, ascending);
}

double load_quantile(const double *sorted, int count, double q)
{
	return count ? sorted[(int)(q * (count - 1) + 0.5)] : 0;
}

static void obey(struct load *l, char *line)
{
	char *words[MAX_WORDS];
	int count = 0;
	for (char *w = strtok(line, " \n"); w && count < MAX_WORDS; w = strtok(NULL, " \n"))
		words[count++] = w;
	if (!count)
		return;
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		if (!strcmp(commands[i].name, words[0])) {
			commands[i].run(l, count, words);
			return;
		}
	printf("= error what=unknown-command-%s\n", words[0]);
}

int main(int argc, char **argv)
{
	static struct load l;
	static char line[4096];
	setvbuf(stdin, NULL, _IONBF, 0); /* start looks for the next line with poll */
	l.uuid = argc > 1 && strncmp(argv[1], "GPU-", 4) == 0 ? argv[1] : NULL;
	while (fgets(line, sizeof line, stdin)) {
		obey(&l, line);
		fflush(stdout);
	}
	return 0;
}
