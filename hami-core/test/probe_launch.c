/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_launch.c: programs that start work in all ways there are; run by limiter_test and
 * limiter_live_test.
 */
#define _GNU_SOURCE
#include "probe_launch.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* probe_main.c is another program's */
void use_context(void)
{
	CUcontext context;
	NEED(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
	NEED(cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

CUfunction probe_kernel(const char *name)
{
	CUmodule module;
	CUfunction f;
	NEED(cuModuleLoadData(&module, "x") == CUDA_SUCCESS &&
	     cuModuleGetFunction(&f, module, name) == CUDA_SUCCESS);
	return f;
}

double now(void)
{
	return (double)fakegpu_now() / 1e9;
}

void rest(double seconds)
{
	fakegpu_sleep_until(fakegpu_now() + (uint64_t)(seconds * 1e9));
}

CUresult launch(CUfunction f, CUstream stream)
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
	NEED(cuStreamCreate(&stream, 0) == CUDA_SUCCESS &&
	     cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
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
	NEED(cuStreamCreate(&stream, 0) == CUDA_SUCCESS &&
	     cuStreamCreate(&other, 0) == CUDA_SUCCESS);
	CUfunction small = probe_kernel("work_50us");
	double start = now();
	for (int i = 0; i < 4000; i++)
		NEED(launch(small, i % 2 ? stream : other) == CUDA_SUCCESS);
	NEED(cuCtxSynchronize() == CUDA_SUCCESS);
	double took = now() - start;
	NEED(took > 0.32 && took < 0.8); /* 200 ms at 50 % */
}

static void *thread_work(void *context)
{
	NEED(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	CUfunction f = probe_kernel("work_100us");
	for (int i = 0; i < 2000; i++)
		NEED(launch(f, NULL) == CUDA_SUCCESS);
	return NULL;
}

/* Four threads that have 800 ms of work in all. */
static void four_threads(void *(*work)(void *), const char *what)
{
	pthread_t t[4];
	CUcontext context;
	use_context();
	NEED(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
	double start = now();
	for (int i = 0; i < 4; i++)
		NEED(!pthread_create(&t[i], NULL, work, context));
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	NEED(cuCtxSynchronize() == CUDA_SUCCESS);
	printf("    800 ms of %s by four threads at 50 %%: %.3f s\n", what, now() - start);
	NEED(now() - start > 1.2);
}

static void work_threads(void)
{
	four_threads(thread_work, "work");
}

static void *thread_new_work(void *context)
{
	NEED(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	for (int i = 0; i < 400; i++)
		NEED(launch(probe_kernel("work_500us"), NULL) == CUDA_SUCCESS);
	return NULL;
}

/* What some kernels take is learnt while others, new as well, are queued at a guess. */
static void work_new_in_threads(void)
{
	four_threads(thread_new_work, "work that is new");
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

/*
 * The limits file is leased when the program starts and for some launches more. The lease is on
 * descriptor 9, which an earlier self has opened.
 */
static void work_lease_ends(void)
{
	use_context();
	CUfunction f = probe_kernel("work_2000us");
	double start = now();
	for (int i = 0; i < 20; i++)
		NEED(launch(f, NULL) == CUDA_SUCCESS);
	NEED(cuCtxSynchronize() == CUDA_SUCCESS && now() - start < 0.1);
	NEED(!fcntl(9, F_SETLEASE, F_UNLCK) && !close(9));
	start = now();
	for (int i = 0; i < 60; i++)
		NEED(launch(f, NULL) == CUDA_SUCCESS);
	NEED(cuCtxSynchronize() == CUDA_SUCCESS);
	printf("    120 ms of work at 20 %% once the limits can be read: %.3f s\n", now() - start);
	NEED(now() - start > 0.35);
}

static void work_leased(void)
{
	signal(SIGIO, SIG_IGN);
	int fd = open(getenv("HAMICORE_TEST_LIMITS"), O_RDWR);
	NEED(fd >= 0 && !fcntl(fd, F_SETLEASE, F_WRLCK) && dup2(fd, 9) == 9 && !close(fd));
	execl("/proc/self/exe", "probe_launch", "lease-ends", (char *)NULL);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} probes[] = {{"ways", work_ways},
		      {"capture", work_capture},
		      {"streams", work_streams},
		      {"contexts", work_contexts},
		      {"threads", work_threads},
		      {"new-in-threads", work_new_in_threads},
		      {"forked", work_forked},
		      {"interleaved", probe_interleaved},
		      {"devices", work_devices},
		      {"requests", work_requests},
		      {"bystanders", work_bystanders},
		      {"departures", work_departures},
		      {"once", work_once},
		      {"strangers", work_strangers},
		      {"together", work_together},
		      {"blocked", work_blocked},
		      {"loading", work_loading},
		      {"blocking", work_blocking},
		      {"leased", work_leased},
		      {"lease-ends", work_lease_ends}};
	for (size_t i = 0; argc == 2 && i < sizeof probes / sizeof *probes; i++)
		if (!strcmp(argv[1], probes[i].name))
			return probes[i].run(), 0;
	return 2;
}
