/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "context/capture.h"

#include <pthread.h>
#include <string.h>

#include "driver/resolve.h"

static struct {
	/* Recursive: a profiler's callback, run by the driver within a call, may record, too. */
	pthread_mutex_t mutex;
	/* Calls that begin or end captures: how many were made, and how many of them came back. */
	uint64_t begins, begun, ends, ended;
	long open; /* captures under way */
} captures = {.mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};

/* The mode before; -1: nothing was changed. */
static int exchange_mode(int mode)
{
	fn_cuThreadExchangeStreamCaptureMode call = ORIGINAL(cuThreadExchangeStreamCaptureMode);
	return call && mode >= 0 && call(&mode) == CUDA_SUCCESS ? mode : -1;
}

int capture_relax(void)
{
	return exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
}

void capture_restore(int before)
{
	exchange_mode(before);
}

int capture_is_active(CUstream stream)
{
	int status = 0;
	fn_cuStreamIsCapturing get = ORIGINAL(cuStreamIsCapturing);
	return get && (get(stream, &status) != CUDA_SUCCESS || status);
}

/* Whether a stream records, as far as the driver says. */
static int is_recording(CUstream stream)
{
	int status = 0;
	fn_cuStreamIsCapturing get = ORIGINAL(cuStreamIsCapturing);
	return get && get(stream, &status) == CUDA_SUCCESS && status;
}

int capture_hold(CUstream stream)
{
	/* the legacy stream cannot record */
	if (!stream || !is_recording(stream))
		return 0;
	pthread_mutex_lock(&captures.mutex);
	if (is_recording(stream))
		return 1;
	pthread_mutex_unlock(&captures.mutex);
	return 0;
}

void capture_release(void)
{
	pthread_mutex_unlock(&captures.mutex);
}

static uint64_t count_of(const uint64_t *calls)
{
	return __atomic_load_n(calls, __ATOMIC_ACQUIRE);
}

static void count_one(uint64_t *calls)
{
	__atomic_add_fetch(calls, 1, __ATOMIC_ACQ_REL);
}

int capture_is_any_open(void)
{
	return __atomic_load_n(&captures.open, __ATOMIC_ACQUIRE) > 0;
}

void capture_watch(struct capture_view *v)
{
	*v = (struct capture_view){count_of(&captures.begun), count_of(&captures.ended)};
}

/*
 * The stream is asked, since it may take part in a capture of another stream by waiting for an
 * event of that. It is asked first: a capture that ends between the two looks has been counted at
 * the second one.
 */
int capture_may_have_recorded(const struct capture_view *v, CUstream stream)
{
	if (!stream)
		return 0;
	return (capture_is_any_open() && is_recording(stream)) ||
	       count_of(&captures.begins) != v->begun || count_of(&captures.ends) != v->ended;
}

void capture_begin_begin(void)
{
	count_one(&captures.begins);
	__atomic_add_fetch(&captures.open, 1, __ATOMIC_ACQ_REL);
}

CUresult capture_begin_end(CUresult result)
{
	if (result != CUDA_SUCCESS)
		__atomic_sub_fetch(&captures.open, 1, __ATOMIC_ACQ_REL);
	count_one(&captures.begun);
	return result;
}

void capture_end_begin(void)
{
	pthread_mutex_lock(&captures.mutex);
	count_one(&captures.ends);
}

CUresult capture_end_end(CUresult result)
{
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
		__atomic_sub_fetch(&captures.open, 1, __ATOMIC_ACQ_REL);
	count_one(&captures.ended);
	pthread_mutex_unlock(&captures.mutex);
	return result;
}

void capture_after_fork(void)
{
	static const pthread_mutex_t fresh = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	memset(&captures, 0, sizeof captures);
	captures.mutex = fresh; /* another thread of the parent may have held it */
}
