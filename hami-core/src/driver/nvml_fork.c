/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/nvml_fork.h"

#include <stddef.h>

#include "driver/resolve.h"
#include "platform/log.h"
#include "platform/prim.h"

#define PATIENCE_MS 5000
#define DEVICES 64

static int loaded_in; /* the process that this library was loaded in; 0: too early to know */
static int known; /* the process whose answer is known: its ID, negative where NVML hangs */

__attribute__((constructor)) static void note_process(void)
{
	loaded_in = prim_pid();
}

/* In a copy of this process: the calls that this library makes. */
static void ask_nvml(void)
{
	fn_nvmlInit_v2 init = (fn_nvmlInit_v2)original_known(ID_nvmlInit_v2);
	fn_nvmlDeviceGetCount_v2 count_devices =
		(fn_nvmlDeviceGetCount_v2)original_known(ID_nvmlDeviceGetCount_v2);
	fn_nvmlDeviceGetHandleByIndex_v2 handle_of = (fn_nvmlDeviceGetHandleByIndex_v2)
		original_known(ID_nvmlDeviceGetHandleByIndex_v2);
	fn_nvmlDeviceGetMemoryInfo memory_of =
		(fn_nvmlDeviceGetMemoryInfo)original_known(ID_nvmlDeviceGetMemoryInfo);
	fn_nvmlDeviceGetComputeRunningProcesses_v3 list =
		(fn_nvmlDeviceGetComputeRunningProcesses_v3)original_known(
			ID_nvmlDeviceGetComputeRunningProcesses_v3);
	unsigned count = 0;
	if (!init || !count_devices || !handle_of || init() || count_devices(&count))
		return;
	for (unsigned i = 0, none = 0; i < count && i < DEVICES; i++, none = 0) {
		nvmlDevice_t device;
		nvmlMemory_t memory;
		if (handle_of(i, &device))
			continue;
		if (memory_of)
			memory_of(device, &memory);
		if (list)
			list(device, &none, NULL);
	}
}

int nvml_answers(void)
{
	int me = prim_pid(), before = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
	if (!loaded_in || me == loaded_in || before == me || before == -me ||
	    resolve_was_loaded_here(LIBRARY_NVML))
		return before != -me;
	int answers = prim_ends_in_copy(ask_nvml, PATIENCE_MS);
	__atomic_store_n(&known, answers ? me : -me, __ATOMIC_RELEASE);
	if (!answers)
		log_line(LOG_WARN,
			 "NVML does not answer in process %d, which was forked while a thread was "
			 "in NVML: its code is not counted",
			 me);
	return answers;
}
