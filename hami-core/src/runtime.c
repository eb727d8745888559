/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "borrow.h"
#include "device.h"
#include "limiter.h"
#include "log.h"
#include "prim.h"
#include "region.h"
#include "resolve.h"
#include "table.h"

#define ORDINALS 64 /* CUDA devices whose index is remembered */

static struct {
	pthread_mutex_t mutex;
	int started; /* 1 + enum gate; 0 = not yet */
	int fork_handled;
	int limits_read;
	struct limits limits;
	int index[ORDINALS]; /* index + 2 (so 1 = not in the limits); 0 = not asked yet */
} self = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Where the limits are. Only a test build may look elsewhere: see ../README.md. */
static const char *limits_path(void)
{
#ifdef HAMICORE_TEST_BUILD
	const char *path = getenv("HAMICORE_TEST_LIMITS");
	if (path)
		return path;
#endif
	return VGPU_LIMITS_PATH;
}

static const char *get_variable(const char *name)
{
	return secure_getenv(name);
}

static void complain(const char *name, const char *value)
{
	log_line(LOG_ERROR, "%s=%.80s makes no sense and counts as unset (write 512m, 1.5g, or a percent)", name, value);
}

/* File, else environment. A file that is there and cannot be used closes the gate. */
static void read_limits(void)
{
	static char text[65536];
	char reason[256];
	if (self.limits_read)
		return;
	self.limits_read = 1;
	long n = prim_read(limits_path(), text, sizeof text);
	if (n < 0 && (errno == ENOENT || errno == ENOTDIR)) {
		limits_from_environment(get_variable, complain, &self.limits);
		return;
	}
	if (n < 0) {
		snprintf(reason, sizeof reason, "%s", strerror(errno));
		self.limits = (struct limits){.source = LIMITS_INVALID};
	} else {
		limits_parse(text, (size_t)n, &self.limits, reason, sizeof reason);
	}
	if (self.limits.source == LIMITS_INVALID)
		log_line(LOG_ERROR, "%s: %s; no device memory is given out (CUDA_ERROR_NOT_PERMITTED)", limits_path(), reason);
	else if (self.limits.ignored_line)
		log_line(LOG_WARN, "%s: line %d has words of a later version, ignored", limits_path(), self.limits.ignored_line);
}

static void child_after_fork(void)
{
	pthread_mutex_init(&self.mutex, NULL); /* another thread of the parent may have held it */
	resolve_after_fork();
	region_after_fork();
	table_reset();
	account_after_fork();
	limiter_after_fork();
	borrow_after_fork();
	memset(self.index, 0, sizeof self.index);
	self.started = self.limits_read = 0;
}

static enum gate start(void)
{
	char reason[512];
	if (!self.fork_handled) {
		pthread_atfork(NULL, NULL, child_after_fork);
		self.fork_handled = 1;
	}
	read_limits();
	if (self.limits.source == LIMITS_NONE)
		return GATE_OPEN;
	if (self.limits.source == LIMITS_INVALID)
		return GATE_CLOSED;
	if (!region_attach(&self.limits, reason, sizeof reason))
		return GATE_LIMITED;
	const char *strict = get_variable("VGPU_STRICT"); /* it takes, so anybody may set it */
	if (strict && !strcmp(strict, "1")) {
		log_line(LOG_ERROR, "%s; VGPU_STRICT=1: no device memory is given out (CUDA_ERROR_NOT_PERMITTED)", reason);
		return GATE_CLOSED;
	}
	log_line(LOG_WARN, "%s; this process counts for itself: the limit holds for each process, not for their sum", reason);
	return GATE_LIMITED;
}

enum gate runtime_gate(void)
{
	int started = __atomic_load_n(&self.started, __ATOMIC_ACQUIRE);
	if (started)
		return (enum gate)(started - 1);
	pthread_mutex_lock(&self.mutex);
	if (!self.started)
		__atomic_store_n(&self.started, 1 + (int)start(), __ATOMIC_RELEASE);
	started = self.started;
	pthread_mutex_unlock(&self.mutex);
	return (enum gate)(started - 1);
}

int runtime_guards_loading(void)
{
	pthread_mutex_lock(&self.mutex);
	read_limits();
	int guards = self.limits.source != LIMITS_NONE && !self.limits.keep_deepbind;
	pthread_mutex_unlock(&self.mutex);
	return guards;
}

int runtime_device(CUdevice ordinal)
{
	int kept = ordinal >= 0 && ordinal < ORDINALS;
	int known = kept ? __atomic_load_n(&self.index[ordinal], __ATOMIC_ACQUIRE) : 0;
	if (known)
		return known - 2;
	pthread_mutex_lock(&self.mutex);
	int index = device_index(&self.limits, ordinal);
	if (index == -1)
		log_line(LOG_ERROR, "CUDA device %d is not in the limits: it gives out no memory", ordinal);
	if (index != -2 && kept)
		__atomic_store_n(&self.index[ordinal], index + 2, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&self.mutex);
	return index;
}

int runtime_device_by_uuid(const char *uuid)
{
	pthread_mutex_lock(&self.mutex);
	int index = device_index_of_uuid(&self.limits, uuid);
	pthread_mutex_unlock(&self.mutex);
	return index;
}

int runtime_current_device(void)
{
	CUdevice ordinal;
	fn_cuCtxGetDevice get = ORIGINAL(cuCtxGetDevice);
	if (!get || get(&ordinal) != CUDA_SUCCESS)
		return -2;
	return runtime_device(ordinal);
}

const char *runtime_uuid(int index)
{
	return self.limits.device[index].uuid;
}

int runtime_oversubscribes(void)
{
	return self.limits.oversubscribe;
}

int runtime_charges_overhead(void)
{
	return !self.limits.context_free;
}

uint64_t runtime_memory_limit(int index)
{
	return self.limits.device[index].memory;
}

unsigned runtime_cores(int index)
{
	return self.limits.device[index].given ? self.limits.device[index].cores : 100;
}

enum limits_policy runtime_policy(void)
{
	return self.limits.policy;
}

int runtime_priority(void)
{
	return self.limits.priority;
}

const char *runtime_borrow(void)
{
	return self.limits.borrow;
}
