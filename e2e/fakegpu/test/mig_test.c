/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mig_test.c: partitions through NVML's own calls: every state a device can be in is reached
 * and counted, and what hardware refuses is refused. The counts are those of NVIDIA's table
 * (19 maximal layouts on an A100, 5 on an A30) and of the states below them.
 */
#define _GNU_SOURCE
#include "nvml_mig_abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

nvmlReturn_t nvmlInit_v2(void), nvmlShutdown(void);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned, nvmlDevice_t *), nvmlDeviceGetHandleByUUID(const char *, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t, unsigned, nvmlReturn_t *), nvmlDeviceGetMigMode(nvmlDevice_t, unsigned *, unsigned *);
nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t, unsigned, nvmlGpuInstanceProfileInfo_t *);
nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t, unsigned, nvmlGpuInstancePlacement_t *, unsigned *);
nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t, unsigned, unsigned *);
nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t, unsigned, nvmlGpuInstance_t *);
nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t, unsigned, const nvmlGpuInstancePlacement_t *, nvmlGpuInstance_t *);
nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t), nvmlGpuInstanceGetInfo(nvmlGpuInstance_t, nvmlGpuInstanceInfo_t *);
nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t, unsigned, nvmlGpuInstance_t *, unsigned *);
nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t, unsigned, nvmlGpuInstance_t *);
nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t, unsigned, unsigned, nvmlComputeInstanceProfileInfo_t *);
nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t, unsigned, nvmlComputeInstance_t *);
nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t, unsigned, nvmlComputeInstance_t *, unsigned *);
nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t, unsigned, nvmlComputeInstance_t *);
nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t), nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t, nvmlComputeInstanceInfo_t *);
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t, unsigned *), nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t, unsigned, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t, unsigned *), nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t, unsigned *), nvmlDeviceGetComputeInstanceId(nvmlDevice_t, unsigned *);
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t, nvmlDeviceAttributes_t *), nvmlDeviceGetUUID(nvmlDevice_t, char *, unsigned);
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t, char *, unsigned), nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t *);
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t, unsigned *);

static int failed;

#define NEED(condition)                                                                  \
	do {                                                                             \
		if (!(condition)) {                                                      \
			printf("FAILED %s:%d: %s\n", __func__, __LINE__, #condition);    \
			failed = 1;                                                      \
		}                                                                        \
	} while (0)
#define IS(call, want)                                                                        \
	do {                                                                                  \
		int got_ = (call), want_ = (want);                                            \
		if (got_ != want_) {                                                          \
			printf("FAILED %s:%d: %s is %d, want %d\n", __func__, __LINE__, #call, got_, want_); \
			failed = 1;                                                           \
		}                                                                             \
	} while (0)

/* --- every state of a device --- */

struct slot {
	unsigned id, number, start, size;
};

struct walk {
	nvmlDevice_t device;
	struct slot slot[64];
	int slots;
	unsigned char count[17]; /* instances by profile, in the state at hand */
	int states, maximal, multisets, maximal_multisets;
	unsigned char seen[512][17], seen_maximal[512][17];
};

static int remember(unsigned char (*seen)[17], int n, const unsigned char *count)
{
	for (int i = 0; i < n; i++)
		if (!memcmp(seen[i], count, 17))
			return n;
	memcpy(seen[n], count, 17);
	return n + 1;
}

static nvmlReturn_t make(struct walk *w, int i, nvmlGpuInstance_t *gi)
{
	const nvmlGpuInstancePlacement_t at = {w->slot[i].start, w->slot[i].size};
	return nvmlDeviceCreateGpuInstanceWithPlacement(w->device, w->slot[i].id, &at, gi);
}

/* From the state at hand on to all that have more, each once: slots are added in rising order. */
static void explore(struct walk *w, int from)
{
	int grows = 0;
	w->states++;
	w->multisets = remember(w->seen, w->multisets, w->count);
	for (int i = 0; i < w->slots; i++) {
		nvmlGpuInstance_t gi;
		nvmlReturn_t r = make(w, i, &gi);
		if (r != NVML_SUCCESS) {
			IS(r, FG_NVML_INSUFFICIENT_RESOURCES);
			continue;
		}
		grows = 1;
		if (i >= from) {
			w->count[w->slot[i].number]++;
			explore(w, i + 1);
			w->count[w->slot[i].number]--;
		}
		IS(nvmlGpuInstanceDestroy(gi), NVML_SUCCESS);
	}
	if (grows)
		return;
	w->maximal++;
	w->maximal_multisets = remember(w->seen_maximal, w->maximal_multisets, w->count);
}

static void add_slots(struct walk *w, unsigned number)
{
	nvmlGpuInstanceProfileInfo_t info;
	nvmlGpuInstancePlacement_t at[16];
	unsigned n = 16;
	if (nvmlDeviceGetGpuInstanceProfileInfo(w->device, number, &info) != NVML_SUCCESS)
		return;
	IS(nvmlDeviceGetGpuInstancePossiblePlacements_v2(w->device, info.id, at, &n), NVML_SUCCESS);
	for (unsigned k = 0; k < n; k++)
		w->slot[w->slots++] = (struct slot){info.id, number, at[k].start, at[k].size};
}

static void count_states(const char *what, unsigned device, const unsigned *numbers, const int want[3])
{
	struct walk *w = calloc(1, sizeof *w);
	IS(nvmlDeviceGetHandleByIndex_v2(device, &w->device), NVML_SUCCESS);
	for (int i = 0; numbers[i] < 17; i++)
		add_slots(w, numbers[i]);
	explore(w, 0);
	printf("%s: %d states, %d maximal layouts, %d multisets (%d maximal)\n", what, w->states, w->maximal, w->multisets,
	       w->maximal_multisets);
	IS(w->states, want[0]);
	IS(w->maximal, want[1]);
	IS(w->multisets, want[2]);
	free(w);
}

static void the_states_are_those_of_the_hardware(void)
{
	static const unsigned five[] = {0, 1, 2, 3, 4, 99}, with_double[] = {0, 1, 2, 3, 4, 9, 99};
	count_states("A100-80", 0, five, (const int[]){298, 19, 38});
	count_states("A100-80 with 1g of double memory", 0, with_double, (const int[]){723, 78, 78});
	count_states("A30", 1, five, (const int[]){26, 5, 10});
	count_states("A100-40", 2, five, (const int[]){298, 19, 38});
	count_states("B200", 3, five, (const int[]){298, 19, 38});
	count_states("H200", 4, with_double, (const int[]){723, 78, 78});
	count_states("H100-80", 5, five, (const int[]){298, 19, 38});
}

/* --- memory and names --- */

static void profiles_are_as_published(void)
{
	static const struct { unsigned device, number, id, mib; } want[] = {
		{0, 0, 19, 9728}, {0, 1, 14, 19968}, {0, 2, 9, 40192}, {0, 3, 5, 40192}, {0, 4, 0, 80896}, {0, 7, 20, 9728}, {0, 9, 15, 19968},
		{1, 0, 14, 5952}, {1, 1, 5, 11968}, {1, 3, 0, 24000}, {1, 7, 21, 5952}, {1, 8, 6, 11968},
		{2, 0, 19, 4864}, {2, 4, 0, 40192}, {3, 0, 19, 20992}, {3, 4, 0, 181248}, {4, 0, 19, 16384}, {4, 2, 9, 71424}, {5, 0, 19, 9984},
	};
	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		nvmlDevice_t d;
		nvmlGpuInstanceProfileInfo_t info = {0};
		IS(nvmlDeviceGetHandleByIndex_v2(want[i].device, &d), NVML_SUCCESS);
		IS(nvmlDeviceGetGpuInstanceProfileInfo(d, want[i].number, &info), NVML_SUCCESS);
		IS((int)info.id, (int)want[i].id);
		IS((int)info.memorySizeMB, (int)want[i].mib);
	}
}

/* --- what is refused --- */

static nvmlDevice_t a100(void)
{
	nvmlDevice_t d = NULL;
	IS(nvmlDeviceGetHandleByIndex_v2(0, &d), NVML_SUCCESS);
	return d;
}

static nvmlGpuInstance_t at(nvmlDevice_t d, unsigned id, unsigned start, unsigned size)
{
	nvmlGpuInstance_t gi = NULL;
	IS(nvmlDeviceCreateGpuInstanceWithPlacement(d, id, &(nvmlGpuInstancePlacement_t){start, size}, &gi), NVML_SUCCESS);
	return gi;
}

static void illegal_places_are_refused(void)
{
	nvmlDevice_t d = a100();
	nvmlGpuInstance_t gi;
	IS(nvmlDeviceCreateGpuInstanceWithPlacement(d, 9, &(nvmlGpuInstancePlacement_t){2, 4}, &gi), NVML_ERROR_INVALID_ARGUMENT);
	IS(nvmlDeviceCreateGpuInstanceWithPlacement(d, 9, &(nvmlGpuInstancePlacement_t){0, 3}, &gi), NVML_ERROR_INVALID_ARGUMENT);
	IS(nvmlDeviceCreateGpuInstanceWithPlacement(d, 19, &(nvmlGpuInstancePlacement_t){7, 1}, &gi), NVML_ERROR_INVALID_ARGUMENT);
	IS(nvmlDeviceCreateGpuInstanceWithPlacement(d, 3, &(nvmlGpuInstancePlacement_t){0, 1}, &gi), NVML_ERROR_NOT_SUPPORTED);
	nvmlGpuInstance_t three = at(d, 9, 0, 4), other = at(d, 9, 4, 4);
	IS(nvmlDeviceCreateGpuInstance(d, 19, &gi), FG_NVML_INSUFFICIENT_RESOURCES); /* a slice of compute is left, of memory none */
	IS(nvmlGpuInstanceDestroy(three), NVML_SUCCESS);
	IS(nvmlGpuInstanceDestroy(three), NVML_ERROR_INVALID_ARGUMENT);
	IS(nvmlGpuInstanceDestroy(other), NVML_SUCCESS);
}

static void one_instance_has_the_media_engines(void)
{
	nvmlDevice_t d = a100(), a30;
	nvmlGpuInstance_t media = at(d, 20, 3, 1), gi, other;
	IS(nvmlDeviceCreateGpuInstanceWithPlacement(d, 20, &(nvmlGpuInstancePlacement_t){4, 1}, &gi), FG_NVML_INSUFFICIENT_RESOURCES);
	IS(nvmlGpuInstanceDestroy(media), NVML_SUCCESS);
	IS(nvmlDeviceGetHandleByIndex_v2(1, &a30), NVML_SUCCESS);
	other = at(a30, 6, 0, 2);
	IS(nvmlDeviceCreateGpuInstance(a30, 21, &gi), FG_NVML_INSUFFICIENT_RESOURCES);
	IS(nvmlGpuInstanceDestroy(other), NVML_SUCCESS);
}

static void ids_say_the_place(void)
{
	static const struct { unsigned profile, start, size, id; } want[] = {{0, 0, 8, 0}, {5, 0, 4, 1}, {9, 4, 4, 2}, {14, 4, 2, 5}, {15, 6, 2, 6}, {19, 0, 1, 7}, {19, 6, 1, 13}};
	nvmlDevice_t d = a100();
	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		nvmlGpuInstance_t gi = at(d, want[i].profile, want[i].start, want[i].size), same = NULL;
		nvmlGpuInstanceInfo_t info = {0};
		IS(nvmlGpuInstanceGetInfo(gi, &info), NVML_SUCCESS);
		IS((int)info.id, (int)want[i].id);
		NEED(info.device == d && info.profileId == want[i].profile && info.placement.start == want[i].start);
		IS(nvmlDeviceGetGpuInstanceById(d, info.id, &same), NVML_SUCCESS);
		NEED(same == gi);
		IS(nvmlGpuInstanceDestroy(gi), NVML_SUCCESS);
		IS(nvmlDeviceGetGpuInstanceById(d, info.id, &same), NVML_ERROR_NOT_FOUND);
	}
}

static void capacity_follows_what_is_there(void)
{
	nvmlDevice_t d = a100();
	unsigned n = 99;
	nvmlGpuInstance_t list[7], two = at(d, 14, 2, 2);
	IS(nvmlDeviceGetGpuInstanceRemainingCapacity(d, 14, &n), NVML_SUCCESS);
	IS((int)n, 2);
	IS(nvmlDeviceGetGpuInstanceRemainingCapacity(d, 5, &n), NVML_SUCCESS);
	IS((int)n, 0);
	IS(nvmlDeviceGetGpuInstanceRemainingCapacity(d, 19, &n), NVML_SUCCESS);
	IS((int)n, 5);
	IS(nvmlDeviceGetGpuInstances(d, 14, list, &n), NVML_SUCCESS);
	NEED(n == 1 && list[0] == two);
	IS(nvmlGpuInstanceDestroy(two), NVML_SUCCESS);
}

/* --- compute instances and the devices they make --- */

static void a_partition_is_a_device(void)
{
	nvmlDevice_t d = a100(), mig = NULL, parent = NULL, again = NULL;
	nvmlGpuInstance_t gi = at(d, 9, 4, 4);
	nvmlComputeInstance_t ci = NULL, more = NULL, list[7];
	nvmlComputeInstanceProfileInfo_t profile;
	nvmlComputeInstanceInfo_t info = {0};
	nvmlDeviceAttributes_t attributes = {0};
	nvmlMemory_t memory = {0};
	char uuid[96] = "", second[96] = "", name[96] = "";
	unsigned n = 99;
	IS(nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, 2, 0, &profile), NVML_SUCCESS);
	NEED(profile.sliceCount == 3 && profile.multiprocessorCount == 42);
	IS(nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, 3, 0, &profile), NVML_ERROR_NOT_SUPPORTED);
	IS(nvmlGpuInstanceCreateComputeInstance(gi, profile.id, &ci), NVML_SUCCESS);
	IS(nvmlGpuInstanceCreateComputeInstance(gi, 0, &more), FG_NVML_INSUFFICIENT_RESOURCES);
	IS(nvmlComputeInstanceGetInfo_v2(ci, &info), NVML_SUCCESS);
	mig = info.device;
	IS(nvmlDeviceGetUUID(mig, uuid, sizeof uuid), NVML_SUCCESS);
	NEED(!strncmp(uuid, "MIG-", 4) && strlen(uuid) == 40);
	IS(nvmlDeviceGetHandleByUUID(uuid, &again), NVML_SUCCESS);
	NEED(again == mig);
	IS(nvmlDeviceGetMigDeviceHandleByIndex(d, 0, &again), NVML_SUCCESS);
	NEED(again == mig);
	IS(nvmlDeviceGetMigDeviceHandleByIndex(d, 1, &again), NVML_ERROR_NOT_FOUND);
	IS(nvmlDeviceIsMigDeviceHandle(mig, &n), NVML_SUCCESS);
	IS((int)n, 1);
	IS(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig, &parent), NVML_SUCCESS);
	NEED(parent == d);
	IS(nvmlDeviceGetGpuInstanceId(mig, &n), NVML_SUCCESS);
	IS((int)n, 2);
	IS(nvmlDeviceGetComputeInstanceId(mig, &n), NVML_SUCCESS);
	IS((int)n, 0);
	IS(nvmlDeviceGetAttributes_v2(mig, &attributes), NVML_SUCCESS);
	NEED(attributes.memorySizeMB == 40192 && attributes.multiprocessorCount == 42 && attributes.gpuInstanceSliceCount == 3);
	IS(nvmlDeviceGetName(mig, name, sizeof name), NVML_SUCCESS);
	NEED(!strcmp(name, "NVIDIA A100-SXM4-80GB MIG 3g.40gb"));
	IS(nvmlDeviceGetMemoryInfo(mig, &memory), NVML_SUCCESS);
	NEED(memory.total == 40192ULL << 20 && memory.used == 0);
	IS(nvmlDeviceGetMinorNumber(mig, &n), NVML_ERROR_INVALID_ARGUMENT);
	IS(nvmlGpuInstanceDestroy(gi), FG_NVML_IN_USE);
	IS(nvmlGpuInstanceGetComputeInstances(gi, 2, list, &n), NVML_SUCCESS);
	NEED(n == 1 && list[0] == ci);
	IS(nvmlComputeInstanceDestroy(ci), NVML_SUCCESS);
	IS(nvmlDeviceGetUUID(mig, second, sizeof second), NVML_ERROR_INVALID_ARGUMENT);
	IS(nvmlDeviceGetHandleByUUID(uuid, &again), NVML_ERROR_NOT_FOUND);
	IS(nvmlGpuInstanceCreateComputeInstance(gi, 2, &more), NVML_SUCCESS);
	IS(nvmlComputeInstanceGetInfo_v2(ci, &info), NVML_ERROR_INVALID_ARGUMENT);
	IS(nvmlComputeInstanceGetInfo_v2(more, &info), NVML_SUCCESS);
	IS(nvmlDeviceGetUUID(info.device, second, sizeof second), NVML_SUCCESS);
	NEED(strcmp(uuid, second)); /* made again, it is another */
	IS(nvmlGpuInstanceGetComputeInstanceById(gi, 0, &ci), NVML_SUCCESS);
	NEED(ci == more);
	IS(nvmlComputeInstanceDestroy(more), NVML_SUCCESS);
	IS(nvmlGpuInstanceDestroy(gi), NVML_SUCCESS);
}

static void a_gpu_instance_can_be_divided_once_more(void)
{
	nvmlDevice_t d = a100();
	nvmlGpuInstance_t gi = at(d, 9, 0, 4);
	nvmlComputeInstance_t one = NULL, two = NULL, none = NULL;
	IS(nvmlGpuInstanceCreateComputeInstance(gi, 1, &two), NVML_SUCCESS);
	IS(nvmlGpuInstanceCreateComputeInstance(gi, 0, &one), NVML_SUCCESS);
	IS(nvmlGpuInstanceCreateComputeInstance(gi, 0, &none), FG_NVML_INSUFFICIENT_RESOURCES);
	nvmlComputeInstanceInfo_t info = {0};
	char name[96] = "";
	IS(nvmlComputeInstanceGetInfo_v2(one, &info), NVML_SUCCESS);
	NEED(info.id == 1 && info.placement.start == 2 && info.placement.size == 1);
	IS(nvmlDeviceGetName(info.device, name, sizeof name), NVML_SUCCESS);
	NEED(!strcmp(name, "NVIDIA A100-SXM4-80GB MIG 1c.3g.40gb"));
	IS(nvmlComputeInstanceDestroy(one), NVML_SUCCESS);
	IS(nvmlComputeInstanceDestroy(two), NVML_SUCCESS);
	IS(nvmlGpuInstanceDestroy(gi), NVML_SUCCESS);
}

/* --- the mode --- */

static void the_mode_changes_as_the_architecture_lets_it(void)
{
	nvmlDevice_t ampere = a100(), hopper, none;
	nvmlReturn_t activation = -1;
	unsigned current = 9, pending = 9, n = 9;
	nvmlGpuInstance_t gi = at(ampere, 19, 0, 1);
	IS(nvmlDeviceSetMigMode(ampere, 0, &activation), NVML_SUCCESS);
	IS(activation, FG_NVML_IN_USE);
	IS(nvmlGpuInstanceDestroy(gi), NVML_SUCCESS);
	IS(nvmlDeviceSetMigMode(ampere, 0, &activation), NVML_SUCCESS);
	IS(activation, FG_NVML_RESET_REQUIRED);
	IS(nvmlDeviceGetMigMode(ampere, &current, &pending), NVML_SUCCESS);
	NEED(current == 1 && pending == 0);
	IS(nvmlDeviceSetMigMode(ampere, 1, &activation), NVML_SUCCESS);
	IS(activation, NVML_SUCCESS);
	IS(nvmlDeviceGetHandleByIndex_v2(4, &hopper), NVML_SUCCESS);
	IS(nvmlDeviceSetMigMode(hopper, 0, &activation), NVML_SUCCESS);
	IS(activation, NVML_SUCCESS);
	IS(nvmlDeviceGetMigMode(hopper, &current, &pending), NVML_SUCCESS);
	NEED(current == 0 && pending == 0);
	IS(nvmlDeviceGetMaxMigDeviceCount(hopper, &n), NVML_SUCCESS);
	IS((int)n, 0);
	IS(nvmlDeviceCreateGpuInstance(hopper, 19, &gi), NVML_ERROR_NOT_SUPPORTED);
	IS(nvmlDeviceSetMigMode(hopper, 1, &activation), NVML_SUCCESS);
	IS(activation, NVML_SUCCESS);
	IS(nvmlDeviceGetHandleByIndex_v2(6, &none), NVML_SUCCESS);
	IS(nvmlDeviceSetMigMode(none, 1, &activation), NVML_ERROR_NOT_SUPPORTED);
}

static void who_was_not_given_the_config_node_may_not_configure(const char *dev)
{
	char node[512], aside[600];
	nvmlDevice_t d = a100();
	nvmlGpuInstance_t gi;
	nvmlReturn_t activation;
	snprintf(node, sizeof node, "%s/nvidia-caps/nvidia-cap1", dev);
	snprintf(aside, sizeof aside, "%s.aside", node);
	IS(rename(node, aside), 0);
	IS(nvmlDeviceCreateGpuInstance(d, 19, &gi), FG_NVML_NO_PERMISSION);
	IS(nvmlDeviceSetMigMode(d, 0, &activation), FG_NVML_NO_PERMISSION);
	IS(rename(aside, node), 0);
}

static void the_table_of_minors_is_the_drivers(const char *dir)
{
	char path[512], line[64];
	int lines = 0, right = 0;
	snprintf(path, sizeof path, "%s/mig-minors", dir);
	FILE *f = fopen(path, "re");
	NEED(f != NULL);
	while (f && fgets(line, sizeof line, f)) {
		lines++;
		right += !strcmp(line, "config 1\n") || !strcmp(line, "monitor 2\n") || !strcmp(line, "gpu0/gi0/access 3\n") ||
			 !strcmp(line, "gpu0/gi1/access 12\n") || !strcmp(line, "gpu0/gi1/ci0/access 13\n") ||
			 !strcmp(line, "gpu0/gi3/access 30\n") || !strcmp(line, "gpu1/gi0/access 138\n");
	}
	if (f)
		fclose(f);
	IS(lines, 2 + 32 * 15 * 9);
	IS(right, 7);
}

static void write_machine(const char *dir)
{
	static const char text[] =
		"fakegpu 1\ndriver 580.95.05 cuda 13.0\n"
		"gpu model=\"NVIDIA A100-SXM4-80GB\" memory=81920MiB cc=8.0 mig=enabled sms=108\n"
		"gpu model=\"NVIDIA A30\" memory=24576MiB cc=8.0 mig=enabled sms=56\n"
		"gpu model=\"NVIDIA A100-SXM4-40GB\" memory=40960MiB cc=8.0 mig=enabled sms=108\n"
		"gpu model=\"NVIDIA B200\" memory=183359MiB cc=10.0 mig=enabled sms=148\n"
		"gpu model=\"NVIDIA H200\" memory=143771MiB cc=9.0 mig=enabled sms=132\n"
		"gpu model=\"NVIDIA H100 80GB HBM3\" memory=81559MiB cc=9.0 mig=enabled sms=132\n"
		"gpu model=\"Tesla T4\" memory=16384MiB cc=7.5 sms=40\n";
	char path[512];
	snprintf(path, sizeof path, "%s/topology", dir);
	FILE *f = fopen(path, "we");
	if (!f || fputs(text, f) < 0 || fclose(f))
		exit((perror(path), 1));
	for (int i = 0; i < 7; i++) {
		snprintf(path, sizeof path, "%s/nvidia%d", dir, i);
		if (symlink("/dev/null", path))
			exit((perror(path), 1));
	}
}

int main(void)
{
	char dir[] = "/tmp/fakegpu-mig-XXXXXX", command[64];
	if (!mkdtemp(dir))
		return perror("mkdtemp"), 1;
	write_machine(dir);
	setenv("FAKEGPU_DIR", dir, 1);
	setenv("FAKEGPU_DEV", dir, 1);
	IS(nvmlInit_v2(), NVML_SUCCESS);
	the_table_of_minors_is_the_drivers(dir);
	profiles_are_as_published();
	the_states_are_those_of_the_hardware();
	illegal_places_are_refused();
	one_instance_has_the_media_engines();
	ids_say_the_place();
	capacity_follows_what_is_there();
	a_partition_is_a_device();
	a_gpu_instance_can_be_divided_once_more();
	the_mode_changes_as_the_architecture_lets_it();
	who_was_not_given_the_config_node_may_not_configure(dir);
	IS(nvmlShutdown(), NVML_SUCCESS);
	snprintf(command, sizeof command, "rm -rf %s", dir);
	if (system(command))
		failed = 1;
	puts(failed ? "mig_test FAILED" : "mig_test ok");
	return failed;
}
