/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sized.h: runs a probe of probe_sized.h under limits in MiB, 0 for none. Include machine.h before
 * it.
 */
#ifndef SIZED_H
#define SIZED_H

static void sized(const char *name, int limit0, int limit1, const char *const *variables)
{
	char limits[512], text[2][16], path[256];
	snprintf(limits, sizeof limits,
		 HEAD "device 0 " U0 " memory=%llu cores=0\ndevice 1 " U1 " memory=%llu cores=0\n",
		 "%s", (unsigned long long)limit0 << 20, (unsigned long long)limit1 << 20);
	machine(limits);
	snprintf(text[0], sizeof text[0], "%d", limit0);
	snprintf(text[1], sizeof text[1], "%d", limit1);
	setenv("PROBE_LIMIT_0", text[0], 1);
	setenv("PROBE_LIMIT_1", text[1], 1);
	snprintf(path, sizeof path, "%s/test/test/probe_sized", getenv("VGPU_TEST_BUILD"));
	int code = run((char *const[]){path, (char *)name, NULL}, variables);
	if (code)
		printf("    probe %s ended with %d:\n%s\n", name, code, output);
	CHECK_EQ(code, 0);
	done();
}

#endif
