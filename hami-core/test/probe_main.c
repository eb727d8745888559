/* SPDX-License-Identifier: Apache-2.0 */
/* probe_main.c: chooses a probe by name. */
#include "probe.h"

#include <string.h>

static const struct {
	const char *name;
	void (*run)(void);
} probes[] = {
#define PROBE_ENTRY(function, name) {name, probe_##function},
	PROBES(PROBE_ENTRY)
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof probes / sizeof *probes; i++)
		if (!strcmp(argv[1], probes[i].name))
			return probes[i].run(), 0;
	fprintf(stderr, "probe: unknown probe\n");
	return 2;
}
