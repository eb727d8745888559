/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_mig.c: fakegpuctl's hands on partitions: what an administrator does, and what happens to machines. */
#define _GNU_SOURCE
#include "ctl.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *reason(nvmlReturn_t r)
{
	switch (r) {
	case NVML_ERROR_NOT_SUPPORTED: return "not supported: the device is not in MIG mode or has no such profile";
	case NVML_ERROR_INVALID_ARGUMENT: return "an instance of this profile cannot start there";
	case FG_NVML_INSUFFICIENT_RESOURCES: return "the place is taken";
	case FG_NVML_IN_USE: return "in use";
	case FG_NVML_RESET_REQUIRED: return "reset required: fakegpuctl reset";
	default: return "failed";
	}
}

int ctl_mig(const struct fg_topology *t, char **words)
{
	const struct fg_gpu *g = ctl_device(t, words[0]);
	unsigned on = !strcmp(words[1], "on");
	nvmlReturn_t activation = NVML_SUCCESS;
	if (!g)
		return 1;
	if (!on && strcmp(words[1], "off"))
		return ctl_fail("bad mode %s: want on or off", words[1]);
	fg_lock();
	nvmlReturn_t r = fg_mig_set_mode(g, on, &activation);
	fg_unlock();
	if (r != NVML_SUCCESS)
		return ctl_fail("device %d: %s", g->minor, reason(r));
	printf("mig index=%d uuid=%s mode=%s activation=%s\n", g->minor, g->uuid, words[1],
	       activation == NVML_SUCCESS ? "done" : reason(activation));
	return 0;
}

int ctl_create(const struct fg_topology *t, char **words)
{
	const struct fg_gpu *g = ctl_device(t, words[0]);
	long start = words[2] ? ctl_number(words[2], 7) : -1;
	struct fg_profile p;
	struct fg_gi *gi;
	struct fg_ci *ci;
	if (!g)
		return 1;
	if (words[2] && start < 0)
		return ctl_fail("bad start %s: want a memory slice", words[2]);
	nvmlReturn_t r = fg_profile_by_name(g, words[1], &p);
	if (r != NVML_SUCCESS)
		return ctl_fail("device %d: no profile %s", g->minor, words[1]);
	fg_lock();
	r = fg_gi_create(g, &p, (int)start, &gi);
	if (r == NVML_SUCCESS)
		r = fg_ci_create(g, gi, gi->compute, 0, &ci);
	if (r == NVML_SUCCESS)
		printf("create index=%d gi=%u ci=%u profile=%s start=%u uuid=%s\n", g->minor, gi->id, ci->id, p.name, gi->start, ci->uuid);
	fg_unlock();
	return r == NVML_SUCCESS ? 0 : ctl_fail("device %d, %s: %s", g->minor, words[1], reason(r));
}

int ctl_destroy(const struct fg_topology *t, char **words)
{
	const struct fg_gpu *g = ctl_device(t, words[0]);
	long id = ctl_number(words[1], 14);
	if (!g)
		return 1;
	fg_lock();
	struct fg_gi *gi = id < 0 ? NULL : fg_gi_by_id(g->minor, (unsigned)id);
	nvmlReturn_t r = gi ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
	for (int i = 0; r == NVML_SUCCESS && i < FG_MAX_INSTANCES; i++)
		if (gi->ci[i].in_use)
			r = fg_ci_destroy(g, gi, &gi->ci[i]);
	if (r == NVML_SUCCESS)
		r = fg_gi_destroy(g, gi);
	fg_unlock();
	if (r != NVML_SUCCESS)
		return ctl_fail("device %d, GPU instance %s: %s", g->minor, words[1], gi ? reason(r) : "there is none");
	printf("destroy index=%d gi=%ld\n", g->minor, id);
	return 0;
}

int ctl_reset(const struct fg_topology *t, char **words)
{
	const struct fg_gpu *g = ctl_device(t, words[0]);
	if (!g)
		return 1;
	fg_lock();
	nvmlReturn_t r = fg_mig_reset(g);
	fg_unlock();
	if (r != NVML_SUCCESS)
		return ctl_fail("device %d: %s", g->minor, reason(r));
	printf("reset index=%d uuid=%s\n", g->minor, g->uuid);
	return 0;
}

/* Kills every process that CUDA serves and that can be seen from here; how many there were. */
static int kill_users(void)
{
	int n = 0;
	for (int i = 0; i < FG_MAX_PROCESSES; i++) {
		int pid = fg_state()->process[i].in_use ? fg_owner(i) : -1;
		if (pid > 0 && kill(pid, SIGKILL) == 0)
			n++;
	}
	return n;
}

static int users(void)
{
	int n = 0;
	fg_reap();
	for (int i = 0; i < FG_MAX_PROCESSES; i++)
		n += fg_state()->process[i].in_use;
	return n;
}

int ctl_reboot(const struct fg_topology *t, char **words)
{
	(void)words;
	fg_lock();
	int killed = kill_users();
	for (int i = 0; users() && i < 1000; i++) /* a killed process is gone a moment later */
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	int left = users();
	for (int i = 0; i < t->count && !left; i++) {
		fg_mig_reboot(&t->gpu[i]);
		fg_state()->device[i].lost = 0;
	}
	fg_state()->boots += !left;
	fg_unlock();
	if (left)
		return ctl_fail("%d users of devices could not be killed from here", left);
	printf("reboot killed=%d boots=%llu\n", killed, (unsigned long long)fg_state()->boots);
	return 0;
}

/* The order for a function, or a free place for one, under fg_lock. */
static struct fg_fault *order(const char *function)
{
	struct fg_fault *empty = NULL;
	for (int i = 0; i < FG_MAX_FAULTS; i++) {
		struct fg_fault *f = &fg_state()->fault[i];
		if (!strcmp(f->function, function))
			return f;
		if (!*f->function && !empty)
			empty = f;
	}
	if (empty)
		snprintf(empty->function, sizeof empty->function, "%s", function);
	return empty;
}

static int place_order(const char *function, const struct fg_fault *wanted, int slow)
{
	if (!*function || strlen(function) >= sizeof wanted->function)
		return ctl_fail("bad function %s", function);
	fg_lock();
	struct fg_fault *f = order(function);
	if (f && slow) {
		f->delay_ms = wanted->delay_ms;
	} else if (f) {
		f->after = wanted->after;
		f->always = wanted->always;
		f->code = wanted->code;
	}
	fg_unlock();
	return f ? 0 : ctl_fail("more than %d functions are ordered to fail: fakegpuctl mend", FG_MAX_FAULTS);
}

int ctl_faulty(const struct fg_topology *t, char **words)
{
	(void)t;
	int always = !strcmp(words[1], "always");
	long n = always ? 0 : ctl_number(words[1], 1 << 20), code = ctl_number(words[2], 999);
	if (n < 0 || (!n && !always) || code < 0)
		return ctl_fail("want: fail <function> <n>|always <code>, n from 1");
	if (place_order(words[0], &(struct fg_fault){.after = (uint32_t)n, .always = (uint32_t)always, .code = (int32_t)code}, 0))
		return 1;
	printf("fail function=%s after=%s code=%ld\n", words[0], words[1], code);
	return 0;
}

int ctl_slow(const struct fg_topology *t, char **words)
{
	(void)t;
	long ms = ctl_number(words[1], 600000);
	if (ms < 0)
		return ctl_fail("bad delay %s: want milliseconds", words[1]);
	if (place_order(words[0], &(struct fg_fault){.delay_ms = (uint32_t)ms}, 1))
		return 1;
	printf("slow function=%s ms=%ld\n", words[0], ms);
	return 0;
}

int ctl_mend(const struct fg_topology *t, char **words)
{
	(void)t, (void)words;
	fg_lock();
	memset(fg_state()->fault, 0, sizeof fg_state()->fault);
	fg_unlock();
	printf("mend\n");
	return 0;
}
