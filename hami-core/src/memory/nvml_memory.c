/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/nvml_memory.h"

#include <pthread.h>

#include "memory/account.h"
#include "platform/log.h"
#include "platform/prim.h"
#include "driver/nvml_fork.h"
#include "driver/resolve.h"
#include "settings/settings.h"
#include "shm/region.h"

#define ROOM 512                       /* processes of one card; NVIDIA's MPS allows 60 clients */
#define NOT_AVAILABLE 0xffffffffffffffffULL /* NVML's figure for an amount it does not know */

static struct {
	pthread_mutex_t mutex;
	int state; /* 0 = not tried, 1 = NVML is initialised, -1 = it is not to be had */
	nvmlDevice_t device[HAMI_DEVICES];
	nvmlProcessInfo_v2_t list[ROOM];
	int not_ours; /* NVML's PIDs are of another namespace: ours is somebody else's there */
} self = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* NVML's handle of a device, NULL without one (needs the mutex). */
static nvmlDevice_t nvml_handle_of(int device)
{
	fn_nvmlInit_v2 init = ORIGINAL(nvmlInit_v2);
	fn_nvmlDeviceGetHandleByUUID by_uuid = ORIGINAL(nvmlDeviceGetHandleByUUID);
	if (!self.state)
		self.state = init && by_uuid && nvml_answers() && init() == NVML_SUCCESS ? 1
										 : -1;
	const char *uuid = settings_uuid(device);
	if (self.state == 1 && !self.device[device] && *uuid &&
	    by_uuid(uuid, &self.device[device]) != NVML_SUCCESS)
		self.device[device] = NULL;
	return self.device[device];
}

/* Fills the list; the number in it. Both versions have one structure. */
static unsigned list_processes(nvmlDevice_t device)
{
	unsigned count = ROOM;
	fn_nvmlDeviceGetComputeRunningProcesses_v3 v3 = ORIGINAL(
		nvmlDeviceGetComputeRunningProcesses_v3);
	fn_nvmlDeviceGetComputeRunningProcesses_v2 v2 = ORIGINAL(
		nvmlDeviceGetComputeRunningProcesses_v2);
	nvmlReturn_t r = v3   ? v3(device, &count, self.list)
			 : v2 ? v2(device, &count, self.list)
			      : NVML_ERROR_NOT_SUPPORTED;
	return r == NVML_SUCCESS && count <= ROOM ? count : 0;
}

int nvml_memory_of_process(int device, uint64_t *bytes)
{
	int found = 0;
	pthread_mutex_lock(&self.mutex);
	nvmlDevice_t handle = self.not_ours ? NULL : nvml_handle_of(device);
	unsigned count = handle ? list_processes(handle) : 0, me = (unsigned)prim_pid();
	for (unsigned i = 0; i < count && !found; i++)
		if (self.list[i].pid == me && self.list[i].usedGpuMemory &&
		    self.list[i].usedGpuMemory != NOT_AVAILABLE) {
			*bytes = self.list[i].usedGpuMemory;
			found = 1;
		}
	pthread_mutex_unlock(&self.mutex);
	return found;
}

void nvml_memory_read(int device, struct nvml_memory_reading *r)
{
	int quiet = region_is_quiet(device);
	uint64_t growth = region_generation(device);
	r->own = 0;
	r->data = region_own_data(device);
	r->listed = nvml_memory_of_process(device, &r->own);
	r->grew = region_generation(device) != growth;
	r->still = quiet && !r->grew && region_own_data(device) == r->data &&
		   region_is_quiet(device);
}

void nvml_memory_distrust_pid(int device, uint64_t bytes)
{
	pthread_mutex_lock(&self.mutex);
	int told = self.not_ours;
	self.not_ours = 1;
	pthread_mutex_unlock(&self.mutex);
	if (!told)
		log_line(LOG_WARN,
			 "device %d: NVML's %llu MiB of process %d are another process's, which "
			 "has that number on the host: the code of this one is not counted",
			 device, (unsigned long long)(bytes >> 20), prim_pid());
}

int nvml_memory_card_free(int device, uint64_t *bytes)
{
	nvmlMemory_t memory;
	fn_nvmlDeviceGetMemoryInfo info = ORIGINAL(nvmlDeviceGetMemoryInfo);
	pthread_mutex_lock(&self.mutex);
	nvmlDevice_t handle = nvml_handle_of(device);
	int ok = handle && info && info(handle, &memory) == NVML_SUCCESS;
	pthread_mutex_unlock(&self.mutex);
	if (ok)
		*bytes = memory.free;
	return ok;
}

void nvml_memory_after_fork(void)
{
	pthread_mutex_init(&self.mutex, NULL); /* another thread of the parent may have held it */
	self.state = self.not_ours = 0;
	for (int i = 0; i < HAMI_DEVICES; i++)
		self.device[i] = NULL;
}
