/* SPDX-License-Identifier: Apache-2.0 */
/* nvml.c: what NVML says of the device. It makes no context, so it can watch without taking memory. */
#define _GNU_SOURCE
#include "load.h"

#include "nvml_abi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

#define ROOM 1024
#define CLOCK_SM 1 /* NVML_CLOCK_SM */

static struct {
	int ready;
	nvmlDevice_t device;
	nvmlReturn_t (*init)(void);
	nvmlReturn_t (*by_uuid)(const char *, nvmlDevice_t *);
	nvmlReturn_t (*by_index)(unsigned, nvmlDevice_t *);
	nvmlReturn_t (*memory)(nvmlDevice_t, nvmlMemory_t *);
	nvmlReturn_t (*processes)(nvmlDevice_t, unsigned *, nvmlProcessInfo_v2_t *);
	nvmlReturn_t (*utilisation)(nvmlDevice_t, nvmlUtilization_t *);
	nvmlReturn_t (*clock)(nvmlDevice_t, int, unsigned *);
	nvmlReturn_t (*power)(nvmlDevice_t, unsigned *);
	nvmlReturn_t (*driver)(char *, unsigned);
	nvmlReturn_t (*name)(nvmlDevice_t, char *, unsigned);
} n;

static const char *reach(const struct load *l)
{
	void *h;
	if (n.ready)
		return NULL;
	if (!(h = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)))
		return "no-libnvidia-ml.so.1";
	*(void **)&n.init = dlsym(h, "nvmlInit_v2");
	*(void **)&n.by_uuid = dlsym(h, "nvmlDeviceGetHandleByUUID");
	*(void **)&n.by_index = dlsym(h, "nvmlDeviceGetHandleByIndex_v2");
	*(void **)&n.memory = dlsym(h, "nvmlDeviceGetMemoryInfo");
	*(void **)&n.processes = dlsym(h, "nvmlDeviceGetComputeRunningProcesses_v3");
	*(void **)&n.utilisation = dlsym(h, "nvmlDeviceGetUtilizationRates");
	*(void **)&n.clock = dlsym(h, "nvmlDeviceGetClockInfo");
	*(void **)&n.power = dlsym(h, "nvmlDeviceGetPowerUsage");
	*(void **)&n.driver = dlsym(h, "nvmlSystemGetDriverVersion");
	*(void **)&n.name = dlsym(h, "nvmlDeviceGetName");
	if (!n.init || !n.by_uuid || !n.by_index || !n.memory || !n.processes)
		return "this-NVML-lacks-functions";
	if (n.init() != NVML_SUCCESS)
		return "nvmlInit";
	if (l->uuid ? n.by_uuid(l->uuid, &n.device) : n.by_index(0, &n.device))
		return "no-such-device-in-NVML";
	n.ready = 1;
	return NULL;
}

/* nvml: memory of the device and who runs on it, with bytes, as NVML tells them here */
void load_nvml(struct load *l, int count, char **words)
{
	static nvmlProcessInfo_v2_t list[ROOM];
	nvmlMemory_t memory;
	unsigned room = ROOM;
	char driver[96] = "unknown", name[128] = "unknown";
	const char *why = reach(l);
	(void)count, (void)words;
	if (why || n.memory(n.device, &memory) != NVML_SUCCESS || n.processes(n.device, &room, list) != NVML_SUCCESS) {
		printf("= error what=%s\n", why ? why : "NVML-does-not-answer");
		return;
	}
	if (n.driver)
		(void)n.driver(driver, sizeof driver);
	if (n.name)
		(void)n.name(n.device, name, sizeof name);
	for (char *c = name; *c; c++)
		*c = *c == ' ' ? '_' : *c;
	printf("= total=%llu used=%llu free=%llu driver=%s name=%s processes=", memory.total, memory.used, memory.free, driver, name);
	for (unsigned i = 0; i < room; i++)
		printf("%s%u:%llu", i ? "," : "", list[i].pid, list[i].usedGpuMemory);
	printf("\n");
}

/* watch MS AFTER: waits AFTER ms; then how much of the time the device worked, its clock and its power, every 20 ms */
void load_watch(struct load *l, int count, char **words)
{
	double begin = load_seconds() + load_number(count, words, 2, 0) / 1000;
	double until = begin + load_number(count, words, 1, 500) / 1000, busy = 0, clock = 0, power = 0;
	int samples = 0, clocks = 0, powers = 0;
	const char *why = reach(l);
	if (why || !n.utilisation) {
		printf("= error what=%s\n", why ? why : "no-utilisation");
		return;
	}
	const struct timespec pause = {.tv_nsec = 20000000};
	while (load_seconds() < begin)
		nanosleep(&pause, NULL);
	do {
		nvmlUtilization_t u;
		unsigned mhz, mw;
		if (n.utilisation(n.device, &u) == NVML_SUCCESS)
			busy += u.gpu, samples++;
		if (n.clock && n.clock(n.device, CLOCK_SM, &mhz) == NVML_SUCCESS)
			clock += mhz, clocks++;
		if (n.power && n.power(n.device, &mw) == NVML_SUCCESS)
			power += mw / 1000.0, powers++;
		nanosleep(&pause, NULL);
	} while (load_seconds() < until);
	printf("= samples=%d busy=%.1f mhz=%.0f watts=%.0f\n", samples, samples ? busy / samples : -1,
	       clocks ? clock / clocks : 0, powers ? power / powers : 0);
}
