/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ways_out_test.c: the ways out of a limit that people have found, each tried. The ones that
 * preloading cannot close alone are tried again with libvgpu standing in for libcuda.so.1.
 */
#include "machine.h"

static int sanitized(void)
{
	return strstr(getenv("VGPU_TEST_PRELOAD"), "san") != NULL;
}

/* Runs a probe with nothing preloaded and libvgpu in the place of libcuda.so.1. */
static void probe_standing_in(const char *preload, const char *name)
{
	char path[1024];
	snprintf(path, sizeof path, "%s/test/standin:%s", getenv("VGPU_TEST_BUILD"), getenv("VGPU_TEST_FAKE"));
	probe_with(preload, name, (const char *const[]){"LD_LIBRARY_PATH", path, NULL});
}

#define LIMITED "alloc 65 expect oom alloc 64 expect ok"

TEST("way out 1: variables that say otherwise")
{
	machine(LIMITS);
	probe("exact", (const char *const[]){"CUDA_DEVICE_MEMORY_LIMIT", "900m", "CUDA_DEVICE_MEMORY_LIMIT_0", "0",
					     "CUDA_DISABLE_CONTROL", "true", "GPU_CORE_UTILIZATION_POLICY", "disable",
					     "CUDA_DEVICE_MEMORY_SHARED_CACHE", "/nonexistent", NULL});
	done();
}

TEST("way out 2: LD_PRELOAD unset")
{
	in_container(LIMITS, "unset LD_PRELOAD && $CLIENT " LIMITED);
	machine(LIMITS);
	probe_standing_in("", "exact");
	done();
}

TEST("way out 3: a child with a clean environment")
{
	in_container(LIMITS, "$CLEAN $CLIENT " LIMITED);
}

TEST("way out 4: a namespace of the dynamic linker (dlmopen)")
{
	machine(LIMITS);
	if (!sanitized()) { /* a sanitizer cannot be loaded twice */
		probe("dlmopen", NULL);
		probe("dlmopen-driver", NULL);
	}
	probe_standing_in("", "dlmopen");
	done();
}

TEST("a copy in another namespace leaves the threads' data of the program alone")
{
	machine(LIMITS);
	if (!sanitized())
		probe("dlmopen-keys", NULL);
	done();
}

TEST("way out 5: RTLD_DEEPBIND")
{
	machine(LIMITS);
	if (!sanitized()) /* a sanitizer does not bear it */
		probe("deepbind", NULL);
	probe_standing_in("", "deepbind");
	done();
}

TEST("way out 6: cuGetProcAddress")
{
	machine(LIMITS);
	CHECK_EQ(client(NULL, "via getproc " LIMITED), 0);
	probe("proc-address", NULL);
	done();
}

TEST("way out 7: per-thread twins (_ptsz)")
{
	machine(LIMITS);
	probe("per-thread", NULL);
	done();
}

TEST("way out 8: releasing a handle that is still mapped")
{
	machine(LIMITS);
	probe("early-release", NULL);
	done();
}

TEST("way out 9: CUDA_VISIBLE_DEVICES as a subset, in another order, by UUID")
{
	static const char *const first[] = {"0", U0, "GPU-0000"}, *const second[] = {"1,0", U1 "," U0};
	machine(LIMITS);
	for (int i = 0; i < 3; i++)
		probe("exact", (const char *const[]){"CUDA_VISIBLE_DEVICES", first[i], NULL});
	for (int i = 0; i < 2; i++)
		probe("second-limited", (const char *const[]){"CUDA_VISIBLE_DEVICES", second[i], NULL});
	done();
}

TEST("way out 10: fork without exec")
{
	machine(LIMITS);
	probe("forked", NULL);
	done();
}

TEST("way out 11: SIGKILL of a process that holds the region's lock")
{
	machine(LIMITS);
	probe("lock-holder", NULL);
	done();
}

TEST("way out 12: writing to the region file frees no process of its own limit")
{
	machine(LIMITS);
	probe("region-written", NULL);
	done();
	machine(LIMITS);
	probe("sum-written", NULL);
	done();
}

TEST("standing in for libcuda.so.1 limits like preloading does")
{
	static const char *const probes[] = {"exact", "small", "kinds", "pools", "mappings", "arrays", "contexts", "null-arguments",
					     "proc-address", "threads", "race", "killed", "forked", "context-charged"};
	machine(LIMITS);
	for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
		probe_standing_in("", probes[i]);
	done();
}

TEST("standing in and preloading at once count once")
{
	machine(LIMITS);
	probe_standing_in(getenv("VGPU_TEST_PRELOAD"), "exact");
	probe_standing_in(getenv("VGPU_TEST_PRELOAD"), "context-charged");
	done();
}

/*
 * Runs smi, with the library preloaded or standing in for NVML; the limit that it prints for device
 * 0, in MiB.
 */
static long smi(const char *preload, const char *path)
{
	char program[256];
	snprintf(program, sizeof program, "%s/test/test/smi", getenv("VGPU_TEST_BUILD"));
	CHECK_EQ(run_with(preload, (char *const[]){program, NULL}, (const char *const[]){"LD_LIBRARY_PATH", path, NULL}), 0);
	const char *line = strstr(output, U0 " total=");
	CHECK(line && strstr(output, U1 " total=1024MiB"));
	return line ? atol(line + strlen(U0 " total=")) : -1;
}

TEST("standing in for NVML shows the share to programs without CUDA, RTLD_DEEPBIND or not")
{
	char both[1024];
	snprintf(both, sizeof both, "%s/test/standin:%s", getenv("VGPU_TEST_BUILD"), getenv("VGPU_TEST_FAKE"));
	machine(LIMITS);
	CHECK_EQ(smi("", getenv("VGPU_TEST_FAKE")), 1024); /* nothing in front of NVML: the card */
	CHECK_EQ(smi("", both), 64);
	CHECK_EQ(smi(sanitized() ? "" : getenv("VGPU_TEST_PRELOAD"), both), 64);
	static const char *const probes[] = {"nvml", "process-lists", "details"};
	for (int i = 0; i < 3; i++)
		probe_standing_in("", probes[i]);
	done();
	machine(LIMITS "deepbind keep\n"); /* what preloading cannot reach then */
	CHECK_EQ(smi("", both), 64);
	done();
}

/*
 * The device plugin's mounts: the driver's versioned files are ours, its own lie beside, links and
 * cache as the system makes them.
 */
TEST("standing in as the device plugin mounts it, behind every name and after ldconfig")
{
	static const char *const libraries[] = {"libcuda", "libnvidia-ml"};
	char command[2048], path[256];
	machine(LIMITS);
	snprintf(path, sizeof path, "%s/driver", dir);
	CHECK(!mkdir(path, 0755));
	for (int i = 0; i < 2; i++) {
		snprintf(command, sizeof command, "cp %s/test/standin/%s.so.1 %s/%s.so.580.95.05 && cp %s/%s.so.1 %s/%s.so.driver && ln -s %s.so.580.95.05 %s/%s.so.1",
			 getenv("VGPU_TEST_BUILD"), libraries[i], path, libraries[i], getenv("VGPU_TEST_FAKE"), libraries[i], path, libraries[i], libraries[i], path, libraries[i]);
		CHECK(!system(command));
	}
	snprintf(command, sizeof command, "PATH=$PATH:/sbin:/usr/sbin; ! command -v ldconfig >/dev/null || ldconfig -n %s; readlink %s/libcuda.so.1 | grep -q 580", path, path);
	CHECK(!system(command));
	probe_with("", "exact", (const char *const[]){"LD_LIBRARY_PATH", path, NULL});
	probe_with("", "deepbind", (const char *const[]){"LD_LIBRARY_PATH", path, NULL});
	if (!sanitized())
		probe_with(getenv("VGPU_TEST_PRELOAD"), "exact", (const char *const[]){"LD_LIBRARY_PATH", path, NULL});
	CHECK_EQ(smi("", path), 64);
	done();
}

TEST("RTLD_DEEPBIND stays where nothing is limited, and where the file says so")
{
	machine(NULL);
	if (!sanitized())
		CHECK_EQ(run((char *const[]){"python3", "-c", "import ctypes, os; ctypes.CDLL(os.environ['PROBE_PLUGIN'], mode=2 | 8)", NULL}, NULL) & ~127, 0);
	done();
	machine(LIMITS "deepbind keep\n");
	if (!sanitized()) {
		char path[256];
		snprintf(path, sizeof path, "%s/test/test/probe", getenv("VGPU_TEST_BUILD"));
		/* the plugin gets past */
		CHECK_EQ(run((char *const[]){path, "deepbind", NULL}, NULL), 1);
	}
	done();
}

TEST_MAIN
