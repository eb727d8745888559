/* SPDX-License-Identifier: Apache-2.0 */
/* work.c: kinds of work that want all of the device's time, and how much of it got done. */
#define _GNU_SOURCE
#include "load.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define LARGE (64u << 20) /* floats: 256 MiB, read and written at the memory's speed */
#define SMALL (4u << 20)
#define THREADS 256u
#define GRAPH_KERNELS 100
#define CALIBRATION 400 /* launches between two events */

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			unsigned shared, CUstream stream, void **params, void **extra);
CUresult cuStreamCreate(CUstream *stream, unsigned int flags);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult cuEventCreate(CUevent *event, unsigned int flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);

/* What one kind of work is made of. A batch is some 8 ms, so that waiting for it costs little. */
static struct kind {
	const char *name, *kernel;
	unsigned batch, floats;
	int is_graph;
	CUfunction function;
	CUgraphExec graph;
} kinds[] = {
	{"elementwise", "work_130us", 64, LARGE, 0, NULL, NULL},
	{"small", "work_20us", 400, 0, 0, NULL, NULL},
	{"graph", "work_7us", 12, SMALL, 1, NULL, NULL},
};

static CUstream stream;
static CUdeviceptr array;
static unsigned rounds = 1000, blocks = 264;

static CUresult launch(const struct kind *k)
{
	unsigned n = k->floats ? k->floats : rounds;
	unsigned grid = k->floats ? k->floats / THREADS : blocks;
	void *params[] = {&array, &n};
	return cuLaunchKernel(k->function, grid, 1, 1, THREADS, 1, 1, 0, stream, params, NULL);
}

static CUresult record_graph(struct kind *k)
{
	CUgraph recorded = NULL;
	CUresult r = launch(k); /* whatever a first launch loads is loaded outside of the capture */
	if (r == CUDA_SUCCESS)
		r = cuStreamSynchronize(stream);
	if (r == CUDA_SUCCESS)
		r = cuStreamBeginCapture_v2(stream, 0);
	for (int i = 0; i < GRAPH_KERNELS && r == CUDA_SUCCESS; i++)
		r = launch(k);
	if (r == CUDA_SUCCESS)
		r = cuStreamEndCapture(stream, &recorded);
	return r == CUDA_SUCCESS ? cuGraphInstantiateWithFlags(&k->graph, recorded, 0) : r;
}

static int make_ready(struct load *l, struct kind *k)
{
	int sms = 0;
	CUfunction f = load_kernel(l, k->kernel);
	if (!f)
		return -1;
	if (cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, l->device) == CUDA_SUCCESS && sms > 0)
		blocks = (unsigned)sms * 2;
	if (!stream && load_failed("cuStreamCreate", cuStreamCreate(&stream, 1)))
		return -1;
	if (!array && load_failed("cuMemAlloc", cuMemAlloc_v2(&array, (size_t)LARGE * 4)))
		return -1;
	k->function = f;
	if (!k->is_graph || !load_failed("graph", record_graph(k)))
		return 0;
	k->function = NULL;
	return -1;
}

/* The named kind of work, ready to run; NULL after an error was answered. */
static struct kind *prepare(struct load *l, const char *name)
{
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(kinds[i].name, name))
			return kinds[i].function || !make_ready(l, &kinds[i]) ? &kinds[i] : NULL;
	printf("= error what=unknown-work-%s\n", name);
	return NULL;
}

/* One batch, waited for. */
static CUresult batch(const struct kind *k)
{
	CUresult r = CUDA_SUCCESS;
	for (unsigned i = 0; i < k->batch && r == CUDA_SUCCESS; i++)
		r = k->is_graph ? cuGraphLaunch(k->graph, stream) : launch(k);
	return r == CUDA_SUCCESS ? cuStreamSynchronize(stream) : r;
}

static double cpu_seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Batches until `seconds` are over; how many units were done and how long it took. */
static CUresult during(const struct kind *k, double seconds, double *units, double *took)
{
	CUresult r = CUDA_SUCCESS;
	double start = load_seconds();
	for (*units = *took = 0; *took < seconds && r == CUDA_SUCCESS; *took = load_seconds() - start) {
		r = batch(k);
		*units += k->batch;
	}
	return r;
}

/* work KIND SETTLE MS: runs unmeasured for SETTLE ms, so that saved time is spent, then measured for MS */
void load_work(struct load *l, int count, char **words)
{
	double units, took;
	const struct kind *k = prepare(l, count > 1 ? words[1] : "");
	if (!k || load_failed("work", during(k, load_number(count, words, 2, 300) / 1000, &units, &took)))
		return;
	double cpu = cpu_seconds();
	if (load_failed("work", during(k, load_number(count, words, 3, 1000) / 1000, &units, &took)))
		return;
	printf("= kind=%s units=%.0f seconds=%.4f rate=%.3f cpu=%.3f\n", k->name, units, took, units / took,
	       (cpu_seconds() - cpu) / took);
}

/* trace KIND MS STEP: throughput of every STEP ms, and the clock of the world when it began */
void load_trace(struct load *l, int count, char **words)
{
	double total = load_number(count, words, 2, 2000) / 1000, step = load_number(count, words, 3, 100) / 1000;
	double units, took;
	struct timespec t;
	const struct kind *k = prepare(l, count > 1 ? words[1] : "");
	if (!k || load_failed("work", during(k, 0, &units, &took)))
		return;
	clock_gettime(CLOCK_REALTIME, &t);
	double start = load_seconds();
	static char text[65536];
	size_t n = 0;
	while (load_seconds() - start < total && n < sizeof text - 64) {
		double from = load_seconds() - start;
		if (load_failed("work", during(k, step, &units, &took)))
			return;
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%.4f:%.4f:%.2f", n ? "," : "", from, took, units / took);
	}
	printf("= began_ns=%lld%09ld windows=%s\n", (long long)t.tv_sec, t.tv_nsec, text);
}

/* Microseconds of one kernel of this kind, by events around many. */
static CUresult kernel_takes(const struct kind *k, double *us)
{
	CUevent a, b;
	float ms = 0;
	CUresult r = cuEventCreate(&a, CU_EVENT_DEFAULT);
	if (r == CUDA_SUCCESS && (r = cuEventCreate(&b, CU_EVENT_DEFAULT)) == CUDA_SUCCESS)
		r = batch(k);
	if (r == CUDA_SUCCESS)
		r = cuEventRecord(a, stream);
	for (int i = 0; i < CALIBRATION && r == CUDA_SUCCESS; i++)
		r = launch(k);
	if (r == CUDA_SUCCESS)
		r = cuEventRecord(b, stream);
	if (r == CUDA_SUCCESS)
		r = cuEventSynchronize(b);
	if (r == CUDA_SUCCESS)
		r = cuEventElapsedTime(&ms, a, b);
	*us = (double)ms * 1000 / CALIBRATION;
	return r;
}

/* calibrate US: how many rounds make a small kernel last so long. Only a program without a share can tell. */
void load_calibrate(struct load *l, int count, char **words)
{
	double want = load_number(count, words, 1, 20), us = 0;
	const struct kind *k = prepare(l, "small");
	if (!k)
		return;
	for (int i = 0; i < 4; i++) {
		if (load_failed("calibrate", kernel_takes(k, &us)))
			return;
		double better = us > 0 ? rounds * want / us : rounds;
		rounds = better < 1 ? 1 : better > 1e6 ? 1000000 : (unsigned)better;
	}
	printf("= rounds=%u us=%.2f\n", rounds, us);
}

/* rounds N: as another process has calibrated them */
void load_rounds(struct load *l, int count, char **words)
{
	(void)l;
	rounds = (unsigned)load_number(count, words, 1, rounds);
	printf("= rounds=%u\n", rounds);
}

#define TOKEN_KERNELS 40 /* of 20 us */

/* The kind of work that tokens are made of. */
static struct kind *token_kind(int is_graph)
{
	return &kinds[is_graph ? 2 : 1];
}

int load_ready(struct load *l, int is_graph)
{
	return prepare(l, token_kind(is_graph)->name) ? 0 : -1;
}

CUresult load_token(int is_graph, double *device_ms)
{
	static CUevent begin, end;
	const struct kind *k = token_kind(is_graph);
	float ms = 0;
	CUresult r = CUDA_SUCCESS;
	if (!begin && (r = cuEventCreate(&begin, CU_EVENT_DEFAULT)) == CUDA_SUCCESS)
		r = cuEventCreate(&end, CU_EVENT_DEFAULT);
	if (r == CUDA_SUCCESS)
		r = cuEventRecord(begin, stream);
	for (int i = 0; i < (k->is_graph ? 1 : TOKEN_KERNELS) && r == CUDA_SUCCESS; i++)
		r = k->is_graph ? cuGraphLaunch(k->graph, stream) : launch(k);
	if (r == CUDA_SUCCESS)
		r = cuEventRecord(end, stream);
	if (r == CUDA_SUCCESS)
		r = cuEventSynchronize(end);
	if (r == CUDA_SUCCESS)
		r = cuEventElapsedTime(&ms, begin, end);
	*device_ms = ms;
	return r;
}
