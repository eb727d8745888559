/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stress_test.c: what goes wrong once in a thousand times. `make stress` does a thousand, `make
 * test` a few.
 */
#define TEST_SECONDS 600
#include "machine.h"

static void rounds(const char *name, const char *number)
{
	const char *asked = getenv("VGPU_STRESS_ROUNDS");
	machine(LIMITS);
	probe(name, (const char *const[]){"PROBE_ROUNDS", asked ? asked : number, "LIBCUDA_LOG_LEVEL", "0", NULL});
	if (asked)
		printf("%s", output);
	done();
}

TEST("sixteen processes race for the last page of every kind of memory, and one gets it")
{
	rounds("last-page", "100");
}

TEST("after SIGKILL at a random moment the whole limit can be had within 100 ms")
{
	rounds("random-kill", "50");
}

TEST_MAIN
