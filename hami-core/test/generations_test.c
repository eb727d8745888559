/* SPDX-License-Identifier: Apache-2.0 */
/* generations_test.c: drivers of six CUDA versions, each with the probes that it can run. */
#include "machine.h"

static const struct {
	const char *name;
	int since; /* 1000 * major + 10 * minor: the youngest function in it */
} probes[] = {
	{"generation", 0}, {"exact", 0}, {"small", 0}, {"kinds", 0}, {"version-one", 0}, {"mappings", 0}, {"early-release", 0},
	{"arrays", 0}, {"contexts", 0}, {"threads", 0}, {"race", 0}, {"killed", 0}, {"forked", 0}, {"rtld-next", 0},
	{"nvml", 0}, {"process-lists", 0}, {"context-over", 0}, {"lock-holder", 0}, {"region-written", 0}, {"untouched", 0},
	{"null-arguments", 11020}, {"pools", 11020}, {"granule", 11020}, {"foreign-stream", 11020}, {"pool-of-own", 11020},
	{"synchronised", 11020}, {"per-thread", 11030}, {"graph-memory", 11040}, {"proc-address", 12000}, {"code-charged", 12000},
	{"context-charged", 12050},
};

static void generation(const char *version, int number)
{
	char path[1024], text[16];
	snprintf(path, sizeof path, "%s/cuda-%s:%s", getenv("VGPU_TEST_FAKE"), version, getenv("VGPU_TEST_FAKE"));
	snprintf(text, sizeof text, "%d", number);
	machine(LIMITS);
	for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
		if (probes[i].since <= number)
			probe(probes[i].name, (const char *const[]){"LD_LIBRARY_PATH", path, "PROBE_CUDA", text, NULL});
	done();
}

#define GENERATION(version, number)                         \
	TEST("a driver of CUDA " version " is limited")     \
	{                                                   \
		generation(version, number);                \
	}
GENERATION("11.0", 11000)
GENERATION("11.4", 11040)
GENERATION("12.0", 12000)
GENERATION("12.4", 12040)
GENERATION("12.8", 12080)
GENERATION("13.0", 13000)

TEST_MAIN
