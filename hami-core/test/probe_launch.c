/* SPDX-License-Identifier: Apache-2.0 */
/* probe_launch.c: programs that start work in all ways there are; run by limiter_test and limiter_live_test. */
#define _GNU_SOURCE
#include "probe.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KERNEL (CUfunction f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **)
CUresult cuLaunchKernel KERNEL;
CUresult cuLaunchKernel_ptsz KERNEL;
CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **);
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

/* probe_main.c is another program's */
static void use_context(void)
{
	CUcontext context;
	NEED(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
	NEED(cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

CUfunction probe_kernel(const char *name)
{
	CUmodule module;
	CUfunction f;
	NEED(cuModuleLoadData(&module, "x") == CUDA_SUCCESS && cuModuleGetFunction(&f, module, name) == CUDA_SUCCESS);
	return f;
}

/* Seconds on the device's clock, which may be one of its own. */
static double now(void)
{
	return (double)fakegpu_now() / 1e9;
}

static void rest(double seconds)
{
	fakegpu_sleep_until(fakegpu_now() + (uint64_t)(seconds * 1e9));
}

static CUresult launch(CUfunction f, CUstream stream)
{
	return cuLaunchKernel(f, 2, 3, 1, 32, 1, 1, 0, stream, NULL, NULL);
}

static CUgraphExec record(CUfunction f, CUstream stream, int n)
{
	CUgraph graph;
	CUgraphExec exec;
	NEED(cuStreamBeginCapture_v2(stream, 0) == CUDA_SUCCESS);
	while (n--)
		NEED(launch(f, stream) == CUDA_SUCCESS);
	NEED(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
	NEED(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
	return exec;
}

static CUfunction two_ms;
static CUgraphExec graph;
static CUstream stream;

static CUresult one(int way)
{
	const CUlaunchConfig config = {2, 1, 1, 32, 1, 1, 0, stream, NULL, 0};
	switch (way) {
	case 0: return launch(two_ms, stream);
	case 1: return cuLaunchKernel_ptsz(two_ms, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	case 2: return cuLaunchCooperativeKernel(two_ms, 1, 1, 1, 1, 1, 1, 0, stream, NULL);
	case 3: return cuLaunchKernelEx(&config, two_ms, NULL, NULL);
	case 4: return cuLaunch(two_ms);
	case 5: return cuLaunchGrid(two_ms, 2, 2);
	case 6: return cuLaunchGridAsync(two_ms, 2, 2, stream);
	case 7: return cuGraphLaunch(graph, stream);
	default: return cuGraphLaunch_ptsz(graph, NULL);
	}
}

/* 100 ms of work at 20 % take half a second, less a window's credit of 20 ms. */
static void work_ways(void)
{
	use_context();
	two_ms = probe_kernel("work_2000us");
	NEED(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
	graph = record(probe_kernel("work_500us"), stream, 4);
	for (int way = 0; way < 9; way++) {
		double start = now();
		for (int i = 0; i < 50; i++)
			NEED(one(way) == CUDA_SUCCESS);
		NEED(cuCtxSynchronize() == CUDA_SUCCESS);
		double took = now() - start;
		if (took < 0.35)
			printf("    way %d: 100 ms of work took only %.3f s\n", way, took);
		NEED(took >= 0.35);
	}
}

static void *work_meanwhile(void *context)
{
	NEED(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	CUfunction f = probe_kernel("work_1000us");
	for (int i = 0; i < 30; i++)
		NEED(launch(f, NULL) == CUDA_SUCCESS);
	return NULL;
}

static void work_capture(void)
{
	CUcontext context;
	CUgraph recorded;
	pthread_t t;
	use_context();
	two_ms = probe_kernel("work_2000us");
	NEED(cuStreamCreate(&stream, 0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
	NEED(launch(two_ms, stream) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	NEED(cuStreamBeginCapture_v2(stream, 0) == CUDA_SUCCESS);
	NEED(!pthread_create(&t, NULL, work_meanwhile, context));
	double start = now();
	for (int i = 0; i < 1000; i++) /* 2 s of work, recorded and not run */
		NEED(launch(two_ms, stream) == CUDA_SUCCESS);
	NEED(now() - start < 0.5);
	pthread_join(t, NULL); /* has waited and measured during the capture */
	NEED(cuStreamEndCapture(stream, &recorded) == CUDA_SUCCESS);
	start = now();
	NEED(launch(two_ms, stream) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	NEED(now() - start < 1);
}

/* Two streams in turn: their batches cannot be framed, so the sum of single costs counts. */
static void work_streams(void)
{
	CUstream other;
	use_context();
	two_ms = probe_kernel("work_2000us");
	NEED(cuStreamCreate(&stream, 0) == CUDA_SUCCESS && cuStreamCreate(&other, 0) == CUDA_SUCCESS);
	CUfunction small = probe_kernel("work_50us");
	double start = now();
	for (int i = 0; i < 4000; i++)
		NEED(launch(small, i % 2 ? stream : other) == CUDA_SUCCESS);
	NEED(cuCtxSynchronize() == CUDA_SUCCESS);
	double took = now() - start;
	NEED(took > 0.32 && took < 0.8); /* 200 ms at 50 % */
}

static void work_contexts(void)
{
	use_context();
	for (int i = 0; i < 100; i++) {
		CUcontext context;
		NEED(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
		CUfunction f = probe_kernel("work_100us");
		for (int k = 0; k < 10; k++)
			NEED(launch(f, NULL) == CUDA_SUCCESS);
		NEED(cuCtxSynchronize() == CUDA_SUCCESS && cuCtxDestroy_v2(context) == CUDA_SUCCESS);
	}
}

static double seconds_of(CUfunction f, CUcontext where, CUfunction other, CUcontext elsewhere)
{
	double start = now();
	for (int i = 0; i < 50; i++) {
		NEED(cuCtxSetCurrent(where) == CUDA_SUCCESS && launch(f, NULL) == CUDA_SUCCESS);
		NEED(!other || (cuCtxSetCurrent(elsewhere) == CUDA_SUCCESS && launch(other, NULL) == CUDA_SUCCESS));
	}
	NEED(cuCtxSetCurrent(where) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	return now() - start;
}

/* Device 0 is held at 20 %, device 1 is not. */
static void work_devices(void)
{
	CUcontext context[2];
	CUfunction f[2];
	NEED(cuInit(0) == CUDA_SUCCESS);
	for (int i = 0; i < 2; i++) {
		NEED(cuDevicePrimaryCtxRetain(&context[i], i) == CUDA_SUCCESS && cuCtxSetCurrent(context[i]) == CUDA_SUCCESS);
		f[i] = probe_kernel("work_2000us");
	}
	NEED(seconds_of(f[0], context[0], f[1], context[1]) > 0.35); /* 100 ms on each */
	double free = seconds_of(f[1], context[1], NULL, NULL);
	NEED(free >= 0.1 && free < 0.3);
	NEED(seconds_of(f[0], context[0], NULL, NULL) > 0.35);
}

static void *thread_work(void *context)
{
	NEED(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	CUfunction f = probe_kernel("work_100us");
	for (int i = 0; i < 2000; i++)
		NEED(launch(f, NULL) == CUDA_SUCCESS);
	return NULL;
}

static void work_threads(void)
{
	pthread_t t[4];
	CUcontext context;
	use_context();
	NEED(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
	double start = now();
	for (int i = 0; i < 4; i++)
		NEED(!pthread_create(&t[i], NULL, thread_work, context));
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	NEED(cuCtxSynchronize() == CUDA_SUCCESS);
	printf("    800 ms of work by four threads at 50 %%: %.3f s\n", now() - start);
	NEED(now() - start > 1.2);
}

static void work_forked(void)
{
	int status;
	use_context();
	two_ms = probe_kernel("work_2000us");
	for (int i = 0; i < 5; i++)
		NEED(launch(two_ms, NULL) == CUDA_SUCCESS);
	pid_t pid = fork();
	if (pid == 0)
		exit(launch(two_ms, NULL) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	NEED(waitpid(pid, &status, 0) == pid && status == 0);
	NEED(launch(two_ms, NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
}

/* Runs one launch in a thread of its own, as servers with a thread per request do. */
static CUfunction wanted;
static CUcontext serving;

static void *request(void *unused)
{
	(void)unused;
	NEED(cuCtxSetCurrent(serving) == CUDA_SUCCESS);
	NEED(launch(wanted, NULL) == CUDA_SUCCESS && cuStreamSynchronize(NULL) == CUDA_SUCCESS);
	return NULL;
}

static double seconds_of_new(CUfunction f, CUstream where, int n)
{
	double start = now();
	for (int i = 0; i < n; i++)
		NEED(launch(f, where) == CUDA_SUCCESS && cuStreamSynchronize(where) == CUDA_SUCCESS);
	return now() - start;
}

/* 400 requests of 0.5 ms at 20 %, whose batches nobody ends; then there are still events to measure a new kernel with. */
static void work_requests(void)
{
	pthread_t t;
	use_context();
	NEED(cuDevicePrimaryCtxRetain(&serving, 0) == CUDA_SUCCESS);
	wanted = probe_kernel("work_500us");
	seconds_of_new(wanted, NULL, 10);
	double start = now();
	for (int i = 0; i < 400; i++)
		NEED(!pthread_create(&t, NULL, request, NULL) && !pthread_join(t, NULL));
	double took = now() - start, new = seconds_of_new(probe_kernel("work_20us"), NULL, 1000);
	printf("    400 requests of 0.5 ms: %.3f s; 20 ms of a new kernel: %.3f s\n", took, new);
	NEED(took > 0.7);
	NEED(new < 0.6); /* 1.25 s at 250 us each */
}

static void *come_and_go(void *unused)
{
	CUcontext context;
	(void)unused;
	NEED(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
	NEED(launch(wanted, NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS && cuCtxDestroy_v2(context) == CUDA_SUCCESS);
	return NULL;
}

/* A context of another thread that goes takes nothing unpaid of this one along. */
static void work_bystanders(void)
{
	pthread_t t;
	use_context();
	CUfunction f = probe_kernel("work_500us");
	wanted = probe_kernel("work_1us");
	seconds_of_new(f, NULL, 10);
	seconds_of_new(wanted, NULL, 10);
	double start = now();
	for (int i = 0; i < 300; i++) {
		NEED(launch(f, NULL) == CUDA_SUCCESS && cuStreamSynchronize(NULL) == CUDA_SUCCESS);
		NEED(!pthread_create(&t, NULL, come_and_go, NULL) && !pthread_join(t, NULL));
	}
	printf("    150 ms beside contexts that go: %.3f s\n", now() - start);
	NEED(now() - start > 0.55);
}

/* A context for each piece of work: 6 times 60 ms at 20 %, waited for by `way`. */
static void work_in_contexts(int way)
{
	CUevent event;
	double start = now();
	for (int i = 0; i < 6; i++) {
		CUcontext context;
		NEED(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS && cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
		NEED(launch(probe_kernel("work_60000us"), stream) == CUDA_SUCCESS);
		NEED(cuEventCreate(&event, 0) == CUDA_SUCCESS && cuEventRecord(event, stream) == CUDA_SUCCESS);
		NEED(way != 0 || cuCtxSynchronize() == CUDA_SUCCESS);
		NEED(way != 1 || cuStreamSynchronize(stream) == CUDA_SUCCESS);
		NEED(way != 2 || cuEventSynchronize(event) == CUDA_SUCCESS);
		if (way == 3)
			rest(0.05); /* and leaves with the work in flight */
		NEED(cuCtxDestroy_v2(context) == CUDA_SUCCESS);
	}
	printf("    a context for each 60 ms, way %d: %.3f s\n", way, now() - start);
	NEED(now() - start > (way == 3 ? 0.9 : 1.2));
}

static void work_departures(void)
{
	NEED(cuInit(0) == CUDA_SUCCESS);
	for (int way = 0; way < 4; way++)
		work_in_contexts(way);
	double start = now();
	for (int i = 0; i < 6; i++) { /* the primary one, released */
		use_context();
		NEED(launch(probe_kernel("work_60000us"), NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
		NEED(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS);
	}
	NEED(now() - start > 1.2);
}

/* One kernel of 60 ms, waited for, and the end. */
static void work_once(void)
{
	use_context();
	NEED(launch(probe_kernel("work_60000us"), NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	printf("    60 ms of work, done at=%.3f\n", now());
}

static CUcontext both[2];
static CUstream on[2];

static void use_both(void)
{
	NEED(cuInit(0) == CUDA_SUCCESS);
	for (int i = 0; i < 2; i++) {
		NEED(cuDevicePrimaryCtxRetain(&both[i], i) == CUDA_SUCCESS && cuCtxSetCurrent(both[i]) == CUDA_SUCCESS);
		NEED(cuStreamCreate(&on[i], 0) == CUDA_SUCCESS);
	}
}

static double seconds_on(CUfunction f, CUcontext now_current, CUstream where)
{
	NEED(cuCtxSetCurrent(now_current) == CUDA_SUCCESS);
	double start = now();
	for (int i = 0; i < 50; i++)
		NEED(launch(f, where) == CUDA_SUCCESS);
	NEED(cuStreamSynchronize(where) == CUDA_SUCCESS);
	return now() - start;
}

/* Work goes where its stream is, whatever is current. Device 0 is held at 20 %, device 1 is not. 100 ms each. */
static void work_strangers(void)
{
	use_both();
	CUfunction f = probe_kernel("work_2000us");
	double none = seconds_on(f, NULL, on[0]), elsewhere = seconds_on(f, both[1], on[0]);
	double free = seconds_on(f, both[0], on[1]), nowhere = seconds_on(f, NULL, on[1]);
	printf("    without a context %.3f, from the other device %.3f; on the other device %.3f, %.3f s\n", none, elsewhere, free, nowhere);
	NEED(none > 0.35 && elsewhere > 0.35);
	NEED(free < 0.3 && nowhere < 0.3);
	double start = now();
	NEED(cuCtxSetCurrent(both[1]) == CUDA_SUCCESS);
	for (int i = 0; i < 100; i++) /* in turn */
		NEED(launch(f, on[i % 2]) == CUDA_SUCCESS);
	NEED(cuStreamSynchronize(on[0]) == CUDA_SUCCESS && now() - start > 0.35);
}

/* Both devices are held at 50 %. The events of launches on both come back. */
static void work_together(void)
{
	use_both();
	CUfunction f = probe_kernel("work_1500us");
	CUDA_LAUNCH_PARAMS list[2] = {{f, 2, 3, 1, 32, 1, 1, 0, on[0], NULL}, {f, 2, 3, 1, 32, 1, 1, 0, on[1], NULL}};
	double start = now();
	for (int i = 0; i < 600; i++)
		NEED(cuLaunchCooperativeKernelMultiDevice(list, 2, 0) == CUDA_SUCCESS);
	NEED(cuStreamSynchronize(on[0]) == CUDA_SUCCESS && cuStreamSynchronize(on[1]) == CUDA_SUCCESS);
	printf("    0.9 s of work on two devices: %.3f s\n", now() - start);
	NEED(now() - start > 1.6);
	for (int i = 0; i < 2; i++) {
		double new = seconds_of_new(probe_kernel("work_20us"), on[i], 1000);
		printf("    20 ms of a new kernel on device %d: %.3f s\n", i, new);
		NEED(new < 0.3); /* 0.5 s at 250 us each */
	}
}

static void *fill_queue(void *unused)
{
	(void)unused;
	NEED(cuCtxSetCurrent(both[0]) == CUDA_SUCCESS);
	CUfunction f = probe_kernel("work_400000us");
	for (int i = 0; i < 5000; i++)
		launch(f, on[0]);
	return NULL;
}

/* Device 0 takes nothing more for minutes; the share is suspended, so that its queue can be filled. */
static void work_blocked(void)
{
	pthread_t t;
	use_both();
	CUfunction f = probe_kernel("work_1500us");
	NEED(!pthread_create(&t, NULL, fill_queue, NULL));
	rest(0.5);
	double start = now();
	for (int i = 0; i < 20; i++)
		NEED(launch(f, on[1]) == CUDA_SUCCESS);
	printf("    20 launches beside a device that takes none: %.3f s\n", now() - start);
	NEED(now() - start < 0.2);
	_exit(0); /* nobody waits for device 0 */
}

/* The first launch loads code for 300 ms, at 10 %. Only the kernel is work. */
static void work_loading(void)
{
	use_context();
	CUfunction f = probe_kernel("work_1000us");
	double start = now();
	for (int i = 0; i < 5; i++)
		NEED(launch(f, NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	printf("    5 ms of work of a kernel that was loaded first: %.3f s\n", now() - start);
	NEED(now() - start < 0.8);
}

/* Launches that wait for their work, each of a kernel that is new: 50 times 2 ms at 20 %. */
static void work_blocking(void)
{
	use_context();
	double start = now();
	for (int i = 0; i < 50; i++)
		NEED(launch(probe_kernel("work_2000us"), NULL) == CUDA_SUCCESS);
	printf("    100 ms of launches that wait: %.3f s\n", now() - start);
	NEED(now() - start > 0.35);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} probes[] = {{"ways", work_ways}, {"capture", work_capture}, {"streams", work_streams}, {"contexts", work_contexts},
		      {"threads", work_threads}, {"forked", work_forked}, {"interleaved", probe_interleaved}, {"devices", work_devices}, {"requests", work_requests}, {"bystanders", work_bystanders},
		      {"departures", work_departures}, {"once", work_once}, {"strangers", work_strangers}, {"together", work_together},
		      {"blocked", work_blocked}, {"loading", work_loading}, {"blocking", work_blocking}};
	for (size_t i = 0; argc == 2 && i < sizeof probes / sizeof *probes; i++)
		if (!strcmp(argv[1], probes[i].name))
			return probes[i].run(), 0;
	return 2;
}
