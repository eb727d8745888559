/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weak_process_test.c: weaknesses with several processes, their region and their surroundings, by
 * number; see weak_entry_test.c.
 */
#include "machine.h"

static void hold(const char *name, const char *const *variables)
{
	machine(LIMITS);
	probe(name, variables);
	done();
}

TEST("weakness 24: nobody's slot moves, whoever dies")
{
	hold("slots-stay", NULL);
}

TEST("weakness 25: who died while writing keeps nobody waiting")
{
	hold("odd-sequence", NULL);
}

TEST("weakness 26: who died with a lock keeps nobody waiting")
{
	hold("lock-holder", NULL);
}

TEST("weakness 28, 29: limits hold from the start, whatever PIDs NVML speaks of")
{
	static const char *const kinds[] = {"host", "zero", "none"}, *const probes[] = {"exact", "process-lists", "details", "race"};
	machine(LIMITS);
	for (int k = 0; k < 3; k++)
		for (int i = 0; i < 4; i++)
			probe(probes[i], (const char *const[]){"FAKEGPU_NVML_PROCESSES", kinds[k], NULL});
	probe("utilisation", (const char *const[]){"FAKEGPU_NVML_PROCESSES", "host", NULL});
	probe("process-lists", (const char *const[]){"CUDA_VISIBLE_DEVICES", U0, NULL});
	done();
}

TEST("weakness 30: a region that cannot be written ends no program")
{
	machine("vgpu-limits 1\nregion /proc/no/vgpu.cache\ndevice 0 " U0 " memory=67108864 cores=50\n");
	probe("refused", NULL);
	done();
	/* a directory */
	machine("vgpu-limits 1\nregion %s\ndevice 0 " U0 " memory=67108864 cores=50\n");
	probe("refused", NULL);
	done();
}

TEST("weakness 31: signals, umask and environment are the program's")
{
	hold("signals", NULL);
	hold("untouched", NULL);
}

TEST("weakness 32: whether a process lives is not read from its name")
{
	hold("odd-name", NULL);
}

TEST("weakness 33: an old region brings no old limit along")
{
	machine(HEAD "device 0 " U0 " memory=33554432 cores=50\n");
	CHECK_EQ(client(NULL, "alloc 32 expect ok alloc 1 expect oom"), 0);
	write_file("limits", LIMITS);
	probe_once("exact", NULL);
	write_file("limits", HEAD "device 0 " U0 " memory=33554432 cores=50\n");
	CHECK_EQ(client(NULL, "alloc 32 expect ok alloc 1 expect oom"), 0);
	done();
}

TEST("weakness 34: a shell that has lost its environment is limited")
{
	in_container(LIMITS, "$CLEAN $CLIENT alloc 65 expect oom alloc 64 expect ok");
}

static double busy_share(const char *visible, const char *steps)
{
	CHECK_EQ(client((const char *const[]){"CUDA_VISIBLE_DEVICES", visible, NULL}, steps), 0);
	const char *at = strstr(output, "fraction=");
	return at ? atof(at + 9) : -1;
}

TEST("weakness 39: each device has a share of its own, and the right one")
{
	machine(HEAD "device 0 " U0 " memory=0 cores=0\ndevice 1 " U1 " memory=0 cores=20\n");
	/* on a busy machine not each time, but a limited device never has so much */
	double bare = 0;
	for (int tries = 0; bare <= 0.5 && tries < 20; tries++)
		bare = busy_share("0", "busy 0.5 1");
	double alone = busy_share("1", "busy 1 1"), first = busy_share("1,0", "busy 1 1");
	CHECK(bare > 0.5 && alone > 0 && alone < 0.3 && first > 0 && first < 0.3);
	if (test_failed_checks)
		printf("    %.3f %.3f %.3f\n", bare, alone, first);
	done();
}

TEST("weakness 44: monitors see a process without limits, too")
{
	machine(HEAD "device 0 " U0 " memory=0 cores=0\n");
	probe("told", NULL);
	done();
}

TEST("weakness 45: copies, peers, streams and events are the driver's alone; we only look on when a program waits or records")
{
	static const char *const families[] = {"cuMemcpy", "cuMemset", "cuCtxEnablePeerAccess", "cuDeviceCanAccessPeer", "cuStream", "cuEvent", "cuMemAdvise"};
	char path[512], line[128];
	int n = 0;
	snprintf(path, sizeof path, "%s/gen/hooks.txt", getenv("VGPU_TEST_BUILD"));
	FILE *f = fopen(path, "r");
	CHECK(f != NULL);
	while (f && fgets(line, sizeof line, f)) {
		n++;
		for (size_t i = 0; i < sizeof families / sizeof *families; i++)
			CHECK(strncmp(line, families[i], strlen(families[i])) != 0 || strstr(line, "Synchronize") || strstr(line, "Query") ||
			      strstr(line, "BeginCapture") || strstr(line, "EndCapture"));
	}
	CHECK(n > 80);
	if (f)
		fclose(f);
}

TEST("weakness 46: NVML lists the container's processes, in all its lists")
{
	hold("process-lists", NULL);
	hold("details", NULL);
}

TEST_MAIN
