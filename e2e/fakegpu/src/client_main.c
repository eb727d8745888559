/* SPDX-License-Identifier: Apache-2.0 */
/* client_main.c: cudaclient, linked to libcuda.so.1 and nothing else of this folder. */
#include "client.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The first process of a container has no default action: it would not end when asked to. */
static void leave(int signal)
{
	_exit(128 + signal);
}

static int usage(FILE *to)
{
	fputs("usage: cudaclient STEP...   steps run in order, each prints a line of key=value\n"
	      "  info                       devices and their memory as CUDA and NVML tell it\n"
	      "  processes                  who runs on each device, as NVML tells it\n"
	      "  alloc N                    N MiB on the current device; also alloc-async, alloc-managed, alloc-pitch\n"
	      "  free                       give all blocks back\n"
	      "  launch N                   N kernels of 1 ms\n"
	      "  busy S [MS]                kernels of MS (1) back to back for S seconds; prints the fraction of time they took\n"
	      "  churn N M                  for ever: N MiB, M more that must be refused, a kernel, N back; counts what is not so\n"
	      "  device I                   make device I current\n"
	      "  via link|dlsym|getproc     how later steps reach the driver (link at first)\n"
	      "  expect ok|oom              exit 3 unless the last step ended so\n"
	      "  hold S, sleep S, forever   wait\n"
	      "  fork N                     the rest runs in N children; before any step that uses CUDA\n"
	      "  grow PATH                  write on in files, * for all, until they take no more\n"
	      "  lease PATH                 take a lease on a file: who opens it waits\n"
	      "  env                        CUDA_* and NVIDIA_* variables, libvgpu, the limits file\n",
	      to);
	return to == stderr ? 2 : 0;
}

int main(int argc, char **argv)
{
	static struct client c;
	if (argc < 2)
		return usage(stderr);
	signal(SIGTERM, leave);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return usage(stdout);
	const char *why = driver_reach(&c.driver, "link");
	if (why)
		return fprintf(stderr, "cudaclient: %s\n", why), 1;
	return client_run(&c, argc - 1, argv + 1);
}
