/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml_process.c: running processes and utilisation. PIDs are those of the asker's
 * namespace; processes of other namespaces are not listed, as with NVIDIA's open
 * kernel module. FAKEGPU_NVML_PROCESSES makes it one of the others: "host" for PIDs that
 * mean nothing here, "zero" for no amounts, "none" for an empty list. With FAKEGPU_NVML_NAMESAKE=<MiB> some process
 * of the host, which has so much, goes by the asker's number there.
 */
#include "nvml_fake.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NO_INSTANCE 0xffffffffu

/* Whether a process counts for a device; for a MIG device only those on it do. */
static int runs_on(const struct fg_process *p, const struct fg_gpu *gpu)
{
	return !gpu->gi_serial || p->ci_serial == gpu->ci_serial;
}

static void name_instance(const struct fg_process *p, int minor, nvmlProcessInfo_v2_t *out)
{
	struct fg_gi *gi = p->gi_serial ? fg_gi_by_serial(minor, p->gi_serial) : NULL;
	struct fg_ci *ci = fg_ci_by_serial(gi, p->ci_serial);
	if (!ci)
		return;
	out->gpuInstanceId = gi->id;
	out->computeInstanceId = ci->id;
}

/* Copies up to `room` processes; the number there are. */
static unsigned collect(nvmlDevice_t device, nvmlProcessInfo_v2_t *out, unsigned room)
{
	const char *kind = getenv("FAKEGPU_NVML_PROCESSES");
	int host = kind && !strcmp(kind, "host"), zero = kind && !strcmp(kind, "zero");
	unsigned n = 0;
	if (kind && !strcmp(kind, "none"))
		return 0;
	fg_lock();
	for (int i = 0; i < FG_MAX_PROCESSES; i++) {
		const struct fg_process *p = &fg_state()->process[i];
		int pid = p->in_use && p->used[device->gpu.minor] && runs_on(p, &device->gpu) ? fg_owner(i) : -1;
		if (pid <= 0)
			continue;
		if (n < room)
			out[n] = (nvmlProcessInfo_v2_t){.pid = (unsigned)pid + (host ? 4000000u : 0),
							.usedGpuMemory = zero ? 0 : p->used[device->gpu.minor],
							.gpuInstanceId = NO_INSTANCE, .computeInstanceId = NO_INSTANCE};
		if (n < room)
			name_instance(p, device->gpu.minor, &out[n]);
		n++;
	}
	fg_unlock();
	const char *namesake = getenv("FAKEGPU_NVML_NAMESAKE");
	if (namesake && n < room)
		out[n] = (nvmlProcessInfo_v2_t){.pid = (unsigned)getpid(), .usedGpuMemory = strtoull(namesake, NULL, 10) << 20,
						.gpuInstanceId = NO_INSTANCE, .computeInstanceId = NO_INSTANCE};
	return n + (namesake != NULL);
}

FG_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *out);
FG_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *out)
{
	CHECK_ANY(device, count && (out || *count == 0));
	unsigned room = *count;
	*count = collect(device, out, room);
	return *count <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

FG_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *out);
FG_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *out)
{
	return nvmlDeviceGetComputeRunningProcesses_v3(device, count, out);
}

FG_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *out);
FG_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *out)
{
	nvmlProcessInfo_v2_t all[FG_MAX_PROCESSES];
	CHECK_DEVICE(device, count && (out || *count == 0));
	unsigned room = *count;
	*count = collect(device, all, FG_MAX_PROCESSES);
	for (unsigned i = 0; i < *count && i < room; i++)
		out[i] = (nvmlProcessInfo_v1_t){.pid = all[i].pid, .usedGpuMemory = all[i].usedGpuMemory};
	return *count <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

/* The newer list: mode 0 is compute; there is nothing of the other two kinds. */
FG_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *list);
FG_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *list)
{
	nvmlProcessInfo_v2_t all[FG_MAX_PROCESSES];
	CHECK_DEVICE(device, list);
	if (list->version != (sizeof *list | 1u << 24))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (list->mode > 2 || (list->numProcArrayEntries && !list->procArray))
		return NVML_ERROR_INVALID_ARGUMENT;
	unsigned room = list->numProcArrayEntries, there = list->mode ? 0 : collect(device, all, FG_MAX_PROCESSES);
	list->numProcArrayEntries = there;
	for (unsigned i = 0; i < there && i < room; i++)
		list->procArray[i] = (nvmlProcessDetail_v1_t){.pid = all[i].pid, .usedGpuMemory = all[i].usedGpuMemory,
							      .gpuInstanceId = NO_INSTANCE, .computeInstanceId = NO_INSTANCE};
	return there <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

static nvmlReturn_t none(nvmlDevice_t device, unsigned int *count)
{
	CHECK_DEVICE(device, count);
	*count = 0;
	return NVML_SUCCESS;
}

#define NONE(name)                                                                    \
	FG_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, void *); \
	FG_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, void *out) \
	{                                                                             \
		(void)out;                                                            \
		return none(device, count);                                           \
	}
NONE(nvmlDeviceGetGraphicsRunningProcesses)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v2)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v3)
NONE(nvmlDeviceGetMPSComputeRunningProcesses)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v3)

FG_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out);
FG_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
	CHECK_DEVICE(device, out);
	fg_lock();
	out->gpu = fg_state()->device[device->gpu.minor].busy_until_ns > fg_now_ns() ? 100 : 0;
	out->memory = (unsigned)(fg_used(device->gpu.minor) * 100 / device->gpu.memory);
	fg_unlock();
	return NVML_SUCCESS;
}
