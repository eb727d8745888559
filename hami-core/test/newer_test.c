/* SPDX-License-Identifier: Apache-2.0 */
/*
 * newer_test.c: drivers of CUDA 12.8 to 13.4, and one that is newer; threads with small stacks;
 * children that are forked while a thread is in NVML.
 */
#include "machine.h"

TEST("memory of a part of a device is the device's, by handle and by pool")
{
	machine(LIMITS);
	probe("newer-places", NULL);
	done();
}

TEST("a process in a checkpoint holds nothing, and comes back only where there is room")
{
	machine(LIMITS);
	probe("checkpoint", NULL);
	done();
}

TEST("a process whose memory the caller copies holds it until that is complete")
{
	machine(LIMITS);
	probe("checkpoint", (const char *const[]){"PROBE_MAPPED", "1", NULL});
	done();
}

TEST("the memory limit that NVML tells is the smaller of the driver's and ours")
{
	machine(LIMITS);
	probe("memory-limits", NULL);
	done();
}

/* How often a text is in what the last program has printed. */
static int times(const char *part)
{
	int n = 0;
	for (const char *at = output; (at = strstr(at, part)) != NULL; at++)
		n++;
	return n;
}

#define TOPOLOGY(version) \
	"fakegpu 1\ndriver 580.95.05 cuda " version "\n" \
	"gpu model=\"A\" memory=1024MiB pci=0000:07:00.0 uuid=" U0 "\n"

TEST("the log says once which drivers are known, and warns of a newer one")
{
	static const char *const all[] = {"LIBCUDA_LOG_LEVEL", "3", NULL};
	machine(LIMITS);
	CHECK_EQ(client(all, "alloc 1 alloc 1"), 0);
	CHECK_EQ(times("tried with drivers up to CUDA 13.4, and this one is of 13.0\n"), 1);
	CHECK_EQ(client(NULL, "alloc 1"), 0);
	CHECK_EQ(times("tried with"), 0);
	write_file("topology", TOPOLOGY("13.9"));
	CHECK_EQ(client(NULL, "alloc 1 alloc 1"), 0);
	CHECK_EQ(times("warning: this library was tried with drivers up to CUDA 13.4, and this one is of 13.9"), 1);
	done();
}

#define MORE_STACK 4096 /* bytes that a call may take on top of the driver's own */

TEST("a call takes little more of a thread's stack than the driver's own")
{
	static const char *const calls[] = {"start", "list", "context", "allocation"};
	unsigned long bare[4] = {0};
	if (strstr(getenv("VGPU_TEST_PRELOAD"), "san"))
		return; /* a sanitizer's calls take much of it */
	machine(LIMITS);
	probe_with("", "stack", NULL);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(sscanf(strstr(output, calls[i]), "%*s %lu", &bare[i]), 1);
	probe("stack", NULL);
	for (int i = 0; i < 4; i++) {
		unsigned long with = 0;
		CHECK_EQ(sscanf(strstr(output, calls[i]), "%*s %lu", &with), 1);
		printf("    %s: %lu without the library, %lu with it\n", calls[i], bare[i], with);
		CHECK(with <= bare[i] + MORE_STACK);
	}
	done();
}

TEST("a child that is forked while a thread is in NVML starts CUDA and is limited")
{
	machine(LIMITS);
	probe("forked-in-nvml", NULL);
	done();
}

TEST_MAIN
