/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "settings/settings.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "driver/resolve.h"
#include "platform/log.h"
#include "platform/prim.h"
#include "settings/device.h"
#include "settings/components.h"
#include "settings/settings_read.h"
#include "shm/region.h"

#define ORDINALS 64  /* CUDA devices whose index is remembered */
#define RETRY_MS 100 /* between two attempts to make the region, */
#define RETRY_TIMES 9 /* and as many times as long as an attempt took */

/*
 * The mutex is never held around calls of the driver, of NVML or of the loader: whoever has the
 * loader's lock may be waiting for it. (region_attach looks functions of the C library up, in
 * lists that no constructor keeps locked.)
 */
static struct {
	pthread_mutex_t mutex;
	int fork_handled;
	int known; /* the settings have been read, and stay */
	int told;  /* what is wrong with them has been said, by this process or a parent */
	int told_later;
	int told_region;
	long long retry_ms; /* not before then is the region tried again */
	int named; /* the devices of limits that know numbers alone have their UUIDs */
	struct settings settings;
	int index[ORDINALS]; /* index + 2 (so 1 = not in the limits); 0 = not asked yet */
} self = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/*
 * What a child must not take over from its parent, wherever it comes from: this is zero in it, also
 * where no fork handler has run (raw clone, _Fork).
 */
struct of_this_process {
	int state;   /* 0 = a new process has it: everything is its parent's */
	int started; /* 1 + enum gate; 0 = not yet */
};
enum { PROCESS_NEW, PROCESS_BEGINS, PROCESS_KNOWN };
static struct of_this_process unwiped = {.state = PROCESS_KNOWN}, *process = &unwiped;

/* Reads the settings, unless they are known for good (needs the mutex). */
static void read_settings_once(void)
{
	if (self.known)
		return;
	settings_read(&self.settings);
	__atomic_store_n(&self.known, !self.settings.may_pass, __ATOMIC_RELEASE);
}

/*
 * What the container may use is what the node says when a program is loaded: from then on the
 * program may change its root, its mounts and its variables.
 */
__attribute__((constructor)) static void at_load(void)
{
	int saved = errno; /* programs begin with 0 */
	pthread_mutex_lock(&self.mutex);
	read_settings_once();
	pthread_mutex_unlock(&self.mutex);
	errno = saved;
}

static void child_after_fork(void)
{
	pthread_mutex_init(&self.mutex, NULL); /* another thread of the parent may have held it */
	components_after_fork();
	memset(self.index, 0, sizeof self.index);
	self.retry_ms = 0;
	process->started = 0;
	__atomic_store_n(&process->state, PROCESS_KNOWN, __ATOMIC_RELEASE);
}

/* Does what a fork handler would have done, in a child that had none. One thread does it. */
static void handle_unseen_fork(void)
{
	int state = PROCESS_NEW;
	if (__atomic_compare_exchange_n(&process->state, &state, PROCESS_BEGINS, 0,
					__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		child_after_fork();
	while (__atomic_load_n(&process->state, __ATOMIC_ACQUIRE) != PROCESS_KNOWN)
		prim_relax();
}

/*
 * Has the child of a fork start anew. Outside of the mutex: handlers of others, run by fork, may
 * wait for it.
 */
static void handle_forks(void)
{
	if (__atomic_load_n(&self.fork_handled, __ATOMIC_ACQUIRE))
		return;
	struct of_this_process *wiped = prim_wiped_on_fork(sizeof *wiped);
	pthread_atfork(NULL, NULL, child_after_fork); /* twice does no harm */
	pthread_mutex_lock(&self.mutex);
	if (wiped && process == &unwiped && !unwiped.started) {
		wiped->state = PROCESS_KNOWN;
		__atomic_store_n(&process, wiped, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&self.mutex);
	__atomic_store_n(&self.fork_handled, 1, __ATOMIC_RELEASE);
}

/* LATER and REFUSED: closed, and to be asked again. */
enum start_result { START_DONE, START_PRIVATE, START_REFUSED, START_LATER };

/*
 * Whether memory is refused while there is no region. Each process would hold to the limit, and
 * their sum exceed what the node has given to the container, at its neighbours' cost. No variable
 * turns that off. Limits from variables are the container's own, and a weaker one is its choice.
 */
static int needs_region(void)
{
	const struct limits *limits = &self.settings.limits;
	return self.settings.strict || (limits->source == LIMITS_FILE && limits_has_any(limits));
}

/*
 * Tries to join the region (needs the mutex). Another attempt is like the first one, whatever
 * made that fail: until one succeeds this process has been given no memory, and its contexts are
 * charged when they are next used. So all failures are tried again, and what an attempt may cost
 * is bounded instead.
 */
static enum start_result join_region(enum gate *gate, char *reason, size_t size)
{
	long long before = prim_coarse_ms();
	*gate = GATE_LIMITED;
	if (!region_attach(&self.settings.limits, reason, size))
		return START_DONE;
	if (!needs_region()) {
		region_attach_private(&self.settings.limits);
		return START_PRIVATE;
	}
	*gate = GATE_CLOSED;
	long long now = prim_coarse_ms();
	__atomic_store_n(&self.retry_ms, now + RETRY_MS + RETRY_TIMES * (now - before),
			 __ATOMIC_RELEASE);
	return START_REFUSED;
}

/* Decides the gate (needs the mutex). */
static enum start_result decide_gate_locked(enum gate *gate, int *error, char *reason, size_t size)
{
	read_settings_once();
	enum limits_source source = self.settings.limits.source;
	*gate = source == LIMITS_NONE ? GATE_OPEN : GATE_CLOSED;
	*error = self.settings.error;
	if (self.settings.may_pass)
		return START_LATER;
	if (source == LIMITS_NONE || source == LIMITS_INVALID)
		return START_DONE;
	if (prim_can_open()) { /* if not, the driver cannot start either */
		*error = errno;
		return START_LATER;
	}
	return join_region(gate, reason, size);
}

/*
 * Says what start() found, without the mutex: texts of errors may be translated, by libraries
 * that are loaded for it.
 */
static void log_start(enum start_result how, int error, const char *reason)
{
	if (how == START_LATER) {
		if (!__atomic_exchange_n(&self.told_later, 1, __ATOMIC_ACQ_REL))
			log_line(LOG_WARN,
				 "the limits cannot be held yet: %s; no device memory is given out "
				 "meanwhile (CUDA_ERROR_NOT_PERMITTED)",
				 strerror(error));
		return;
	}
	if (!__atomic_exchange_n(&self.told, 1, __ATOMIC_ACQ_REL))
		settings_log_problems(&self.settings);
	if (how == START_REFUSED && !__atomic_exchange_n(&self.told_region, 1, __ATOMIC_ACQ_REL))
		log_line(LOG_ERROR,
			 "%s; this file adds up what the container's processes hold: until it can "
			 "be used no device memory is given out (CUDA_ERROR_NOT_PERMITTED)",
			 reason);
	if (how == START_PRIVATE)
		log_line(LOG_WARN,
			 "%s; this process counts for itself: the limit holds for each process, "
			 "not for their sum",
			 reason);
}

static int waits_to_retry(void)
{
	long long due = __atomic_load_n(&self.retry_ms, __ATOMIC_ACQUIRE);
	return due && prim_coarse_ms() < due;
}

/* Decides the gate, if no other thread does; not part of settings_gate, which has to be quick. */
__attribute__((noinline)) static enum gate decide_gate(void)
{
	enum gate gate = GATE_CLOSED;
	enum start_result how = START_DONE;
	int error = 0;
	char reason[512] = "";
	handle_unseen_fork();
	if (waits_to_retry())
		return GATE_CLOSED;
	handle_forks();
	pthread_mutex_lock(&self.mutex);
	if (process->started) {
		gate = (enum gate)(process->started - 1);
	} else if (!waits_to_retry()) { /* another thread may have tried meanwhile */
		how = decide_gate_locked(&gate, &error, reason, sizeof reason);
		if (how == START_DONE || how == START_PRIVATE)
			__atomic_store_n(&process->started, 1 + (int)gate, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&self.mutex);
	if (gate == GATE_LIMITED)
		original_of(ID_nvmlInit_v2); /* loads NVML now: later it is asked for under locks */
	log_start(how, error, reason);
	return gate;
}

enum gate settings_gate(void)
{
	const struct of_this_process *p = __atomic_load_n(&process, __ATOMIC_RELAXED);
	int started = __atomic_load_n(&p->started, __ATOMIC_ACQUIRE);
	return __builtin_expect(started, 1) ? (enum gate)(started - 1) : decide_gate();
}

static int is_loading_guarded(void)
{
	return self.settings.limits.source != LIMITS_NONE && !self.settings.limits.keep_deepbind;
}

int settings_guards_loading(void)
{
	if (__atomic_load_n(&self.known, __ATOMIC_ACQUIRE))
		return is_loading_guarded();
	handle_forks();
	pthread_mutex_lock(&self.mutex);
	read_settings_once();
	int answer = is_loading_guarded();
	pthread_mutex_unlock(&self.mutex);
	return answer;
}

/* Gives limits that know devices by number alone their UUIDs, once NVML tells them. */
static void name_devices(void)
{
	char list[HAMI_DEVICES][DEVICE_UUID];
	if (self.settings.limits.source != LIMITS_ENVIRONMENT)
		return;
	if (__atomic_load_n(&self.named, __ATOMIC_ACQUIRE))
		return;
	int count = device_list(list), first = 0;
	pthread_mutex_lock(&self.mutex);
	if (count && !self.named) {
		for (int i = 0; i < count; i++)
			memcpy(self.settings.limits.device[i].uuid, list[i], DEVICE_UUID);
		__atomic_store_n(&self.named, 1, __ATOMIC_RELEASE);
		first = 1;
	}
	pthread_mutex_unlock(&self.mutex);
	for (int i = 0; first && i < count; i++)
		region_name_device(i, list[i]);
}

int settings_device_by_uuid(const char *uuid)
{
	name_devices();
	pthread_mutex_lock(&self.mutex); /* another thread may be naming them */
	int index = limits_find(&self.settings.limits, uuid);
	pthread_mutex_unlock(&self.mutex);
	return index;
}

/* Asks for a device's index; what is odd about it is said once per question. */
static int find_device(CUdevice ordinal)
{
	char uuid[DEVICE_UUID];
	if (device_uuid(ordinal, uuid))
		return -2;
	int index = settings_device_by_uuid(uuid);
	if (index < 0 && self.settings.limits.source != LIMITS_FILE) {
		index = device_by_ordinal(&self.settings.limits, ordinal);
		log_line(LOG_WARN, "NVML does not name device %s: it gets the limit of number %d",
			 uuid, index);
	} else if (index < 0) {
		log_line(LOG_ERROR, "CUDA device %d is not in the limits: it gives out no memory",
			 ordinal);
	}
	return index;
}

int settings_device(CUdevice ordinal)
{
	int kept = ordinal >= 0 && ordinal < ORDINALS;
	int known = kept ? __atomic_load_n(&self.index[ordinal], __ATOMIC_ACQUIRE) : 0;
	if (known)
		return known - 2;
	int index = find_device(ordinal);
	if (index != -2 && kept)
		__atomic_store_n(&self.index[ordinal], index + 2, __ATOMIC_RELEASE);
	return index;
}

int settings_current_device(void)
{
	CUdevice ordinal;
	fn_cuCtxGetDevice get = ORIGINAL(cuCtxGetDevice);
	if (!get || get(&ordinal) != CUDA_SUCCESS)
		return -2;
	return settings_device(ordinal);
}

const char *settings_uuid(int index)
{
	return self.settings.limits.device[index].uuid;
}

int settings_oversubscribes(void)
{
	return self.settings.limits.oversubscribe;
}

int settings_charges_overhead(void)
{
	return !self.settings.limits.context_free;
}

uint64_t settings_memory_limit(int index)
{
	return self.settings.limits.device[index].memory;
}

unsigned settings_cores(int index)
{
	const struct limits_device *d = &self.settings.limits.device[index];
	return d->given ? d->cores : 100;
}

enum limits_policy settings_policy(void)
{
	return self.settings.limits.policy;
}

int settings_priority(void)
{
	return self.settings.limits.priority;
}

const char *settings_borrow_path(void)
{
	return self.settings.limits.borrow;
}
