/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_contexts.c: programs whose threads, contexts and devices come and go while they launch; run
 * by limiter_test and limiter_live_test.
 */
#define _GNU_SOURCE
#include "probe_launch.h"

#include <pthread.h>
#include <unistd.h>

void work_contexts(void)
{
	use_context();
	for (int i = 0; i < 100; i++) {
		CUcontext context;
		NEED(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
		CUfunction f = probe_kernel("work_100us");
		for (int k = 0; k < 10; k++)
			NEED(launch(f, NULL) == CUDA_SUCCESS);
		NEED(cuCtxSynchronize() == CUDA_SUCCESS &&
		     cuCtxDestroy_v2(context) == CUDA_SUCCESS);
	}
}

static double seconds_of(CUfunction f, CUcontext where, CUfunction other, CUcontext elsewhere)
{
	double start = now();
	for (int i = 0; i < 50; i++) {
		NEED(cuCtxSetCurrent(where) == CUDA_SUCCESS && launch(f, NULL) == CUDA_SUCCESS);
		NEED(!other || (cuCtxSetCurrent(elsewhere) == CUDA_SUCCESS &&
				launch(other, NULL) == CUDA_SUCCESS));
	}
	NEED(cuCtxSetCurrent(where) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	return now() - start;
}

/* Device 0 is held at 20 %, device 1 is not. */
void work_devices(void)
{
	CUcontext context[2];
	CUfunction f[2];
	NEED(cuInit(0) == CUDA_SUCCESS);
	for (int i = 0; i < 2; i++) {
		NEED(cuDevicePrimaryCtxRetain(&context[i], i) == CUDA_SUCCESS &&
		     cuCtxSetCurrent(context[i]) == CUDA_SUCCESS);
		f[i] = probe_kernel("work_2000us");
	}
	NEED(seconds_of(f[0], context[0], f[1], context[1]) > 0.35); /* 100 ms on each */
	double free = seconds_of(f[1], context[1], NULL, NULL);
	NEED(free >= 0.1 && free < 0.3);
	NEED(seconds_of(f[0], context[0], NULL, NULL) > 0.35);
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
		NEED(launch(f, where) == CUDA_SUCCESS &&
		     cuStreamSynchronize(where) == CUDA_SUCCESS);
	return now() - start;
}

/*
 * 400 requests of 0.5 ms at 20 %, whose batches nobody ends; then there are still events to measure
 * a new kernel with.
 */
void work_requests(void)
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
	NEED(launch(wanted, NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS &&
	     cuCtxDestroy_v2(context) == CUDA_SUCCESS);
	return NULL;
}

/* A context of another thread that goes takes nothing unpaid of this one along. */
void work_bystanders(void)
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
		CUstream stream;
		NEED(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS &&
		     cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
		NEED(launch(probe_kernel("work_60000us"), stream) == CUDA_SUCCESS);
		NEED(cuEventCreate(&event, 0) == CUDA_SUCCESS &&
		     cuEventRecord(event, stream) == CUDA_SUCCESS);
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

void work_departures(void)
{
	NEED(cuInit(0) == CUDA_SUCCESS);
	for (int way = 0; way < 4; way++)
		work_in_contexts(way);
	double start = now();
	for (int i = 0; i < 6; i++) { /* the primary one, released */
		use_context();
		NEED(launch(probe_kernel("work_60000us"), NULL) == CUDA_SUCCESS &&
		     cuCtxSynchronize() == CUDA_SUCCESS);
		NEED(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS);
	}
	NEED(now() - start > 1.2);
}

/* One kernel of 60 ms, waited for, and the end. */
void work_once(void)
{
	use_context();
	NEED(launch(probe_kernel("work_60000us"), NULL) == CUDA_SUCCESS &&
	     cuCtxSynchronize() == CUDA_SUCCESS);
	printf("    60 ms of work, done at=%.3f\n", now());
}

static CUcontext both[2];
static CUstream on[2];

static void use_both(void)
{
	NEED(cuInit(0) == CUDA_SUCCESS);
	for (int i = 0; i < 2; i++) {
		NEED(cuDevicePrimaryCtxRetain(&both[i], i) == CUDA_SUCCESS &&
		     cuCtxSetCurrent(both[i]) == CUDA_SUCCESS);
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

/*
 * Work goes where its stream is, whatever is current. Device 0 is held at 20 %, device 1 is not.
 * 100 ms each.
 */
void work_strangers(void)
{
	use_both();
	CUfunction f = probe_kernel("work_2000us");
	double none = seconds_on(f, NULL, on[0]), elsewhere = seconds_on(f, both[1], on[0]);
	double free = seconds_on(f, both[0], on[1]), nowhere = seconds_on(f, NULL, on[1]);
	printf("    without a context %.3f, from the other device %.3f; on the other device %.3f, "
	       "%.3f s\n",
	       none, elsewhere, free, nowhere);
	NEED(none > 0.35 && elsewhere > 0.35);
	NEED(free < 0.3 && nowhere < 0.3);
	double start = now();
	NEED(cuCtxSetCurrent(both[1]) == CUDA_SUCCESS);
	for (int i = 0; i < 100; i++) /* in turn */
		NEED(launch(f, on[i % 2]) == CUDA_SUCCESS);
	NEED(cuStreamSynchronize(on[0]) == CUDA_SUCCESS && now() - start > 0.35);
}

/* Both devices are held at 50 %. The events of launches on both come back. */
void work_together(void)
{
	use_both();
	CUfunction f = probe_kernel("work_1500us");
	CUDA_LAUNCH_PARAMS list[2] = {{f, 2, 3, 1, 32, 1, 1, 0, on[0], NULL},
				      {f, 2, 3, 1, 32, 1, 1, 0, on[1], NULL}};
	double start = now();
	for (int i = 0; i < 600; i++)
		NEED(cuLaunchCooperativeKernelMultiDevice(list, 2, 0) == CUDA_SUCCESS);
	NEED(cuStreamSynchronize(on[0]) == CUDA_SUCCESS &&
	     cuStreamSynchronize(on[1]) == CUDA_SUCCESS);
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
	CUfunction f = probe_kernel("work_40000000us");
	for (int i = 0; i < 5000; i++)
		launch(f, on[0]);
	return NULL;
}

/*
 * Device 0 takes nothing more for 40 s; the share is suspended, so that its queue can be filled.
 */
void work_blocked(void)
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
	NEED(now() - start < 60); /* each that waited for device 0 would take 40 s */
	_exit(0); /* nobody waits for device 0 */
}
