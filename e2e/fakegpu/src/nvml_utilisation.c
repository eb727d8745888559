/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml_utilisation.c: time on the device by process. A sample is what a process has worked
 * since this library was last asked, or since it was first. FAKEGPU_NVML_PROCESSES as in nvml_process.c.
 */
#include "nvml_fake.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct {
	uint64_t busy_ns, at_ns;
	uint32_t pid;
} last[FG_MAX_DEVICES][FG_MAX_PROCESSES]; /* under fg_lock */

static unsigned long long date_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (unsigned long long)t.tv_sec * 1000000 + (unsigned long long)t.tv_nsec / 1000;
}

/* Percent of the time since the last question that a process has kept the device busy (needs the lock). */
static unsigned busy_percent(int minor, int slot, const struct fg_process *p)
{
	uint64_t now = fg_now_ns(), busy = p->busy_ns[minor];
	if (last[minor][slot].pid != p->pid) {
		last[minor][slot].busy_ns = 0;
		last[minor][slot].at_ns = now - 1000000000;
		last[minor][slot].pid = p->pid;
	}
	uint64_t worked = busy - last[minor][slot].busy_ns, passed = now - last[minor][slot].at_ns;
	last[minor][slot].busy_ns = busy;
	last[minor][slot].at_ns = now;
	return !passed || worked >= passed ? 100 : (unsigned)(worked * 100 / passed);
}

/* Copies up to `room` samples of processes that have worked on the device; the number there are. */
static unsigned collect(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out, unsigned room)
{
	const char *kind = getenv("FAKEGPU_NVML_PROCESSES");
	int host = kind && !strcmp(kind, "host"), minor = device->gpu.minor;
	unsigned n = 0;
	if (kind && !strcmp(kind, "none"))
		return 0;
	fg_lock();
	for (int i = 0; i < FG_MAX_PROCESSES; i++) {
		const struct fg_process *p = &fg_state()->process[i];
		int pid = p->in_use && p->busy_ns[minor] ? fg_owner(i) : -1;
		if (pid <= 0)
			continue;
		if (n < room)
			out[n] = (nvmlProcessUtilizationSample_t){.pid = (unsigned)pid + (host ? 4000000u : 0), .timeStamp = date_us(),
								  .smUtil = busy_percent(minor, i, p)};
		n++;
	}
	fg_unlock();
	return n;
}

FG_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out, unsigned int *count, unsigned long long since);
FG_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out, unsigned int *count, unsigned long long since)
{
	CHECK_DEVICE(device, count);
	unsigned room = out ? *count : 0;
	unsigned there = since > date_us() ? 0 : collect(device, out, room);
	*count = there;
	if (!there)
		return NVML_ERROR_NOT_FOUND; /* as the real library: there is no sample as young as that */
	return there <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

FG_EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *list);
FG_EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *list)
{
	nvmlProcessUtilizationSample_t all[FG_MAX_PROCESSES];
	CHECK_DEVICE(device, list);
	if (list->version != (sizeof *list | 1u << 24))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	unsigned room = list->procUtilArray ? list->processSamplesCount : 0, there = FG_MAX_PROCESSES;
	nvmlReturn_t r = nvmlDeviceGetProcessUtilization(device, all, &there, list->lastSeenTimeStamp);
	list->processSamplesCount = there;
	for (unsigned i = 0; r == NVML_SUCCESS && i < there && i < room; i++)
		list->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){.timeStamp = all[i].timeStamp, .pid = all[i].pid, .smUtil = all[i].smUtil};
	return r == NVML_SUCCESS && there > room ? NVML_ERROR_INSUFFICIENT_SIZE : r;
}
