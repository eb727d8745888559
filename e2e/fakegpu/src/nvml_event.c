/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml_event.c: event sets. Xids come from the state file's ring (fakegpuctl xid);
 * waiting looks at it every 5 ms, since the raiser is another process. While a set has a device,
 * everybody's switch of its MIG mode is refused as in use.
 */
#include "nvml_fake.h"

#include <stdlib.h>
#include <time.h>

struct nvmlEventSet_st {
	pthread_mutex_t mutex;
	unsigned long long types[FG_MAX_DEVICES]; /* registered, by minor */
	uint64_t seen[FG_MAX_DEVICES];            /* events of the ring already delivered */
};

/* How many event sets of this process have a device, by minor. Guarded by fg_lock. */
static struct {
	int slot; /* of this process; -1 before the first registration */
	unsigned sets[FG_MAX_DEVICES];
} self = {.slot = -1};

/* Everybody sees that this process has, or no longer has, a device in an event set. */
static nvmlReturn_t note_watched(int minor, int by)
{
	nvmlReturn_t r = NVML_SUCCESS;
	fg_lock();
	if (self.slot < 0)
		self.slot = fg_claim();
	if (self.slot < 0) {
		r = NVML_ERROR_MEMORY;
	} else {
		self.sets[minor] += (unsigned)by;
		uint64_t bit = (uint64_t)1 << minor, *watched = &fg_state()->process[self.slot].watched;
		*watched = self.sets[minor] ? *watched | bit : *watched & ~bit;
	}
	fg_unlock();
	return r;
}

FG_EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set);
FG_EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	if (!fg_nvml_ready())
		return NVML_ERROR_UNINITIALIZED;
	if (!set)
		return NVML_ERROR_INVALID_ARGUMENT;
	struct nvmlEventSet_st *s = calloc(1, sizeof *s);
	if (!s)
		return NVML_ERROR_MEMORY;
	pthread_mutex_init(&s->mutex, NULL);
	*set = s;
	return NVML_SUCCESS;
}

FG_EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set);
FG_EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	if (!set)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int minor = 0; minor < FG_MAX_DEVICES; minor++)
		if (set->types[minor])
			(void)note_watched(minor, -1);
	free(set);
	return NVML_SUCCESS;
}

FG_EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types);
FG_EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
	CHECK_DEVICE(device, types);
	if (fg_is_vgpu(&device->gpu))
		return NVML_ERROR_NOT_SUPPORTED;
	*types = NVML_EVENT_XID;
	return NVML_SUCCESS;
}

FG_EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set);
FG_EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
	CHECK_DEVICE(device, set);
	if (types & ~NVML_EVENT_XID || fg_is_vgpu(&device->gpu))
		return NVML_ERROR_NOT_SUPPORTED;
	int minor = device->gpu.minor;
	nvmlReturn_t r = NVML_SUCCESS;
	pthread_mutex_lock(&set->mutex);
	if (!set->types[minor]) { /* what happened before is not recorded */
		set->seen[minor] = __atomic_load_n(&fg_state()->device[minor].event_count, __ATOMIC_ACQUIRE);
		r = note_watched(minor, 1);
	}
	if (r == NVML_SUCCESS)
		set->types[minor] |= types;
	pthread_mutex_unlock(&set->mutex);
	return r;
}

static int take_event(nvmlEventSet_t set, nvmlEventData_t *out)
{
	int found = 0;
	pthread_mutex_lock(&set->mutex);
	for (unsigned i = 0; i < nvml.count && !found; i++) {
		int minor = nvml.device[i].gpu.minor;
		struct fg_device_state *d = &fg_state()->device[minor];
		uint64_t count = __atomic_load_n(&d->event_count, __ATOMIC_ACQUIRE);
		if (!set->types[minor] || set->seen[minor] >= count)
			continue;
		if (count - set->seen[minor] > FG_EVENT_RING)
			set->seen[minor] = count - FG_EVENT_RING;
		*out = (nvmlEventData_t){
			.device = &nvml.device[i],
			.eventType = NVML_EVENT_XID,
			.eventData = d->xid[set->seen[minor]++ % FG_EVENT_RING],
			.gpuInstanceId = 0xffffffffu,
			.computeInstanceId = 0xffffffffu,
		};
		found = 1;
	}
	pthread_mutex_unlock(&set->mutex);
	return found;
}

FG_EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms);
FG_EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
	if (!fg_nvml_ready())
		return NVML_ERROR_UNINITIALIZED;
	if (!set || !data)
		return NVML_ERROR_INVALID_ARGUMENT;
	uint64_t end = fg_now_ns() + (uint64_t)timeout_ms * 1000000;
	while (!take_event(set, data)) {
		if (fg_now_ns() >= end)
			return NVML_ERROR_TIMEOUT;
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	return NVML_SUCCESS;
}

FG_EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms);
FG_EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
	return nvmlEventSetWait_v2(set, data, timeout_ms);
}
