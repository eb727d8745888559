/* SPDX-License-Identifier: Apache-2.0 */
/* preload_test.c: programs under LD_PRELOAD=libvgpu.so on the fake driver. */
#include "machine.h"

TEST("the limit is exact, however the driver is reached")
{
	static const char *const ways[] = {"link", "dlsym", "getproc"};
	static const char *const kinds[] = {"alloc", "alloc-managed", "alloc-pitch", "alloc-async"};
	machine(LIMITS);
	for (int w = 0; w < 3; w++)
		for (int k = 0; k < 4; k++) {
			char steps[256];
			snprintf(steps, sizeof steps, "via %s %s 64 expect ok alloc 1 expect oom free alloc 64 expect ok free %s 66 expect oom",
				 ways[w], kinds[k], kinds[k]);
			int code = client(NULL, steps);
			if (code)
				printf("    %s\n%s\n", steps, output);
			CHECK_EQ(code, 0);
		}
	done();
}

TEST("all views of the memory agree: CUDA, NVML, total, free, used")
{
	machine(LIMITS);
	CHECK_EQ(client(NULL, "alloc 24 info"), 0);
	CHECK(strstr(output, "index=0 uuid=" U0 " name=\"A\" total=67108864 meminfo_free=41943040 meminfo_total=67108864 "));
	CHECK(strstr(output, " nvml_total=67108864 nvml_used=25165824 nvml_free=41943040"));
	CHECK(strstr(output, "index=1 uuid=" U1 " name=\"B\" total=1073741824 meminfo_free=1073741824"));
	CHECK(strstr(output, "libvgpu: ") == NULL); /* nothing to say, nothing said */
	done();
}

#define PROBE_TEST(text, name)   \
	TEST(text)               \
	{                        \
		machine(LIMITS); \
		probe(name, NULL); \
		done();          \
	}
PROBE_TEST("refusals are error 2, memory stays usable, unknown pointers go to the driver", "exact")
PROBE_TEST("small allocations share pages and are refused at the page", "small")
PROBE_TEST("managed and pitched memory are charged as they are taken", "kinds")
PROBE_TEST("functions of the API before 3.2 are limited, too", "version-one")
PROBE_TEST("NULL arguments do what the driver does", "null-arguments")
PROBE_TEST("a pool is charged for what it keeps, per-thread twins included", "pools")
PROBE_TEST("what a pool takes beyond the limit is given back", "granule")
PROBE_TEST("a stream of another device draws on that device", "foreign-stream")
PROBE_TEST("a pool of another device is charged to that device", "pool-of-own")
PROBE_TEST("what a pool gave back when synchronising can be used", "synchronised")
PROBE_TEST("memory of graphs is charged while it is reserved", "graph-memory")
PROBE_TEST("physical handles are charged until released and unmapped, on their own device", "mappings")
PROBE_TEST("arrays and mipmaps are charged by their shape", "arrays")
PROBE_TEST("memory in a sparse array is charged until it is unmapped or the array goes", "sparse")
PROBE_TEST("while a thread gives back what its pool took, the others go on", "pool-busy")
PROBE_TEST("managed memory of a pool is charged wholly, on the device that uses it", "pool-managed")
PROBE_TEST("what a thread's default stream records is not the pool's", "capture-per-thread")
PROBE_TEST("a green context is charged nothing, and its memory is the primary context's", "green")
PROBE_TEST("work in a green context is held to the share, however many there have been", "green-held")
PROBE_TEST("work in a green context is settled with the primary one's", "green-settled")
PROBE_TEST("a context that is detached for the last time is gone", "detached")
PROBE_TEST("a context that the driver does not let go keeps its work to be paid", "not-taken")
PROBE_TEST("work is paid by whoever waits for its context, current or not", "waited-by-name")
PROBE_TEST("a context that goes takes its memory along, and no other", "contexts")
PROBE_TEST("NVML reports the limit by UUID, both versions", "nvml")
PROBE_TEST("NVML lists the processes of the container, in all versions, with bytes that add up", "process-lists")
PROBE_TEST("RTLD_NEXT from a third library works, any number of times", "rtld-next")
PROBE_TEST("dlvsym and look-ups of other names are the C library's own", "versioned-lookup")
PROBE_TEST("cuGetProcAddress gives the variant the driver chose", "proc-address")
PROBE_TEST("threads share the limit", "threads")
PROBE_TEST("sixteen processes racing get the limit and no more", "race")
PROBE_TEST("SIGKILL gives the memory back", "killed")
PROBE_TEST("a forked child leaves the parent's books alone", "forked")
PROBE_TEST("a device with memory=0 is unlimited", "unlimited")
PROBE_TEST("a program without CUDA is untouched", "untouched")

PROBE_TEST("a context is charged once, whoever makes it, and credited when it goes", "context-charged")
PROBE_TEST("code and what a context sets aside are charged as they are taken", "code-charged")

PROBE_TEST("code is seen in time by programs that use pools and handles alone", "code-pooled")

TEST("nor is it missed by a program that takes all of its memory at once")
{
	machine(LIMITS);
	probe("code-hasty", NULL);
	probe("code-hasty", (const char *const[]){"PROBE_POOLED", "1", NULL});
	done();
}

TEST("another process that has our PID on the host is not taken for our code")
{
	static const char *const host[] = {"FAKEGPU_NVML_PROCESSES", "host", NULL};
	machine(LIMITS);
	probe("namesake", host);
	CHECK(strstr(output, "are another process's") != NULL);
	probe("namesake-later", host);
	CHECK(strstr(output, "20000 MiB of process") != NULL);
	done();
}

TEST("a process whose contexts are known from others still finds out whose NVML's figure is")
{
	machine(LIMITS);
	probe("namesake-known", (const char *const[]){"FAKEGPU_NVML_PROCESSES", "host", NULL});
	write_file("topology", "fakegpu 1\ndriver 580.95.05 cuda 13.0\n"
			       "gpu model=\"A\" memory=40960MiB pci=0000:07:00.0 uuid=" U0 "\n");
	probe("code-above", NULL);
	CHECK(strstr(output, "another process's") == NULL);
	done();
}

TEST("contexts made by sixteen processes at once are charged alike")
{
	machine(LIMITS);
	probe("context-together", NULL);
	probe("context-together", (const char *const[]){"FAKEGPU_NVML_PROCESSES", "none", NULL});
	done();
}

TEST("\"context free\" shows contexts and does not count them")
{
	machine(LIMITS "context free\n");
	probe("context-free", NULL);
	CHECK(strstr(output, "libvgpu") == NULL);
	done();
}

TEST("a share below a context's size starts and is told why it has no memory")
{
	machine(LIMITS);
	probe("context-over", NULL);
	CHECK(strstr(output, "contexts and code alone exceed its 64 MiB (a context takes 90)") != NULL);
	done();
}

TEST("a context is measured where NVML does not know the process")
{
	static const char *const kinds[] = {"host", "zero", "none"};
	machine(LIMITS);
	for (int i = 0; i < 3; i++)
		probe("context-unknown", (const char *const[]){"FAKEGPU_NVML_PROCESSES", kinds[i], NULL});
	done();
}

TEST("a failure of the driver gives the reservation back")
{
	machine(LIMITS);
	probe("injected", (const char *const[]){"FAKEGPU_FAIL", "cuMemAlloc:2:999", NULL});
	done();
}

TEST("a driver that looks itself up finds itself")
{
	machine(LIMITS);
	probe("exact", (const char *const[]){"FAKEGPU_SELF_LOOKUP", "1", NULL});
	done();
}

TEST("CUDA_VISIBLE_DEVICES moves the limit with the device: subset, order, UUID")
{
	machine(LIMITS);
	probe("second-limited", (const char *const[]){"CUDA_VISIBLE_DEVICES", "1,0", NULL});
	probe("exact", (const char *const[]){"CUDA_VISIBLE_DEVICES", "0", NULL});
	probe("second-limited", (const char *const[]){"CUDA_VISIBLE_DEVICES", U1 "," U0, NULL});
	done();
}

TEST("the environment cannot raise what the file says")
{
	machine(LIMITS);
	probe("exact", (const char *const[]){"CUDA_DEVICE_MEMORY_LIMIT", "900m", "CUDA_DEVICE_MEMORY_LIMIT_0", "900m", NULL});
	done();
}

TEST("without a file the environment limits, by number in PCI order")
{
	machine(NULL);
	probe("exact", (const char *const[]){"CUDA_DEVICE_MEMORY_LIMIT_0", "64m", NULL});
	probe("unlimited", (const char *const[]){"CUDA_DEVICE_MEMORY_LIMIT_0", "64m", NULL});
	probe("second-limited", (const char *const[]){"CUDA_DEVICE_MEMORY_LIMIT_0", "64m", "CUDA_VISIBLE_DEVICES", "1,0", NULL});
	probe("exact", (const char *const[]){"CUDA_DEVICE_MEMORY_LIMIT", "64MiB", NULL});
	done();
}

TEST("nonsense in the environment is told and counts as unset")
{
	machine(NULL);
	CHECK_EQ(client((const char *const[]){"CUDA_DEVICE_MEMORY_LIMIT_0", "lots", "CUDA_DEVICE_MEMORY_LIMIT_1", "64m", NULL},
			"alloc 512 expect ok"), 0);
	CHECK(strstr(output, "libvgpu: error: CUDA_DEVICE_MEMORY_LIMIT_0=lots makes no sense") != NULL);
	done();
}

TEST("without file and variables nothing is limited and nothing is written")
{
	machine(NULL);
	CHECK_EQ(client(NULL, "info alloc 1024 expect ok alloc 1 expect oom"), 0);
	CHECK(strstr(output, "total=1073741824 meminfo_free=1073741824") != NULL);
	CHECK(strstr(output, "libvgpu") == NULL);
	char path[256];
	snprintf(path, sizeof path, "%s/vgpu.cache", dir);
	CHECK(access(path, F_OK));
	done();
}

TEST("a limits file that cannot be used refuses memory and says why")
{
	static const struct {
		const char *text, *says;
	} table[] = {
		{"", "the file is empty"},
		{"vgpu-limits 2\n", "line 1: want"},
		{HEAD "device 0 " U0 " memory=lots cores=5\n", "line 3: bad memory=lots"},
		{HEAD "device 0 all memory=5 cores=5\n", "line 3: bad device UUID"},
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		machine(table[i].text);
		probe("refused", (const char *const[]){"CUDA_DEVICE_MEMORY_LIMIT_0", "64m", NULL});
		CHECK(strstr(output, table[i].says) != NULL);
		/* once */
		CHECK(strstr(output, "error") && !strstr(strstr(output, "error") + 5, "libvgpu: error"));
		done();
	}
	machine(NULL);
	char path[256];
	snprintf(path, sizeof path, "%s/limits", dir);
	CHECK(!mkdir(path, 0755)); /* cannot be read as a file, even by root */
	probe("refused", NULL);
	CHECK(strstr(output, "limits: Is a directory") != NULL);
	done();
}

TEST("a device that the file does not name gives out nothing")
{
	machine(HEAD "device 0 " U0 " memory=67108864 cores=50\n");
	probe("unnamed", NULL);
	CHECK(strstr(output, "CUDA device 1 is not in the limits") != NULL);
	done();
}

TEST("words of a later version are told once and the rest holds")
{
	machine(LIMITS "colour blue\n");
	probe("exact", NULL);
	CHECK(strstr(output, "line 5 has words of a later version") != NULL);
	done();
}

#define NO_REGION "vgpu-limits 1\nregion /proc/no/vgpu.cache\n"
#define MISSING "/proc/no/vgpu.cache: No such file or directory; "

/* The only line that the last program got from the library begins so. */
static int told_once(const char *line)
{
	char *first = strstr(output, "libvgpu: ");
	return first && !strncmp(first, line, strlen(line)) && !strstr(first + 1, "libvgpu: ");
}

TEST("a region that cannot be made gives out nothing, whatever VGPU_STRICT says")
{
	static const char *const limits[] = {
		NO_REGION "device 0 " U0 " memory=67108864 cores=50\n",
		NO_REGION "device 0 " U0 " memory=67108864 cores=0\n",
		NO_REGION "device 0 " U0 " memory=0 cores=50\n",
		NO_REGION "device 0 " U0 " memory=0 cores=0\ndevice 1 " U1 " memory=67108864 cores=0\n",
	};
	static const char *const strict[] = {"0", "1", "", "no"};
	for (int i = 0; i < 4; i++) {
		machine(limits[i]);
		probe("refused", NULL);
		CHECK(told_once("libvgpu: error: " MISSING));
		for (int k = 0; k < 4; k++) {
			probe("refused", (const char *const[]){"VGPU_STRICT", strict[k], NULL});
			CHECK(told_once("libvgpu: error: " MISSING));
		}
		done();
	}
}

TEST("where no memory is given out, graphs and limits of contexts take none")
{
	machine(NO_REGION "device 0 " U0 " memory=67108864 cores=50\n");
	probe("refused-sized", NULL);
	done();
	machine("vgpu-limits 2\n");
	probe("refused-sized", NULL);
	done();
}

TEST("a region that cannot be made stops no container whose devices are all unlimited")
{
	static const char *const variables[] = {"VGPU_STRICT", "0", NULL};
	machine(NO_REGION "device 0 " U0 " memory=0 cores=0\ndevice 1 " U1 " memory=0 cores=0\n");
	for (int i = 0; i < 2; i++) {
		probe("unlimited", i ? variables : NULL);
		CHECK(told_once("libvgpu: warning: " MISSING));
	}
	done();
}

TEST("a region that cannot be made leaves limits of variables in the process, with one warning")
{
	static const char *const variables[] = {"CUDA_DEVICE_MEMORY_LIMIT_0", "64m",
		"CUDA_DEVICE_MEMORY_SHARED_CACHE", "/proc/no/vgpu.cache", NULL};
	machine(NULL);
	probe("exact", variables);
	CHECK(strstr(output, "libvgpu: warning: " MISSING) && !strstr(output, "libvgpu: error"));
	done();
}

TEST("VGPU_STRICT=1 gives out nothing where the sum of several processes could not be held")
{
	static const char *const strict[] = {"VGPU_STRICT", "1", NULL};
	static const char *const variables[] = {"VGPU_STRICT", "1", "CUDA_DEVICE_MEMORY_LIMIT_0", "64m",
		"CUDA_DEVICE_MEMORY_SHARED_CACHE", "/proc/no/vgpu.cache", NULL};
	machine(NULL);
	probe("refused", variables);
	CHECK(told_once("libvgpu: error: " MISSING));
	done();
	machine(LIMITS);
	CHECK_EQ(client(strict, "alloc 10 expect ok alloc 100 expect oom"), 0);
	done();
}

TEST("log level 0 is silent")
{
	machine(LIMITS);
	CHECK_EQ(client((const char *const[]){"LIBCUDA_LOG_LEVEL", "0", NULL}, "alloc 100 expect oom"), 0);
	CHECK(strstr(output, "libvgpu") == NULL);
	CHECK_EQ(client(NULL, "alloc 100 expect oom"), 0);
	CHECK(strstr(output, "libvgpu: warning: device 0: 100 MiB refused: the container uses 0 of its 64 MiB") != NULL);
	done();
}

TEST("ordinary programs run as ever under the library")
{
	static char *const programs[][4] = {
		{"true", NULL}, {"sh", "-c", "echo a | cat | grep a", NULL}, {"bash", "-c", "x=$(ls /); [ -n \"$x\" ]", NULL},
		{"find", "/usr/share", "-maxdepth", "1"}, {"python3", "-c", "import ctypes, socket, ssl, threading", NULL},
		{"perl", "-e", "exit 0", NULL}, {"git", "--version", NULL},
	};
	machine(LIMITS);
	for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
		char *argv[6] = {0};
		memcpy(argv, programs[i], sizeof programs[i]);
		int code = run(argv, NULL);
		CHECK(code == 0 || code == 127); /* 127: not installed here */
		CHECK(strstr(output, "libvgpu") == NULL);
	}
	char path[256];
	snprintf(path, sizeof path, "%s/vgpu.cache", dir);
	CHECK(access(path, F_OK));
	done();
}

/* The product as built, with its only path, in a mount namespace of its own. Needs root. */
TEST("the product reads /usr/local/vgpu/limits and nothing else")
{
	char command[1024], library[256];
	machine(LIMITS);
	snprintf(library, sizeof library, "%s/libvgpu.so", getenv("VGPU_TEST_BUILD"));
	snprintf(command, sizeof command,
		 "mount -t tmpfs none /usr/local && mkdir /usr/local/vgpu && cp %s/limits /usr/local/vgpu/limits && "
		 "LD_PRELOAD=%s %s/cudaclient env info alloc 65 expect oom alloc 64 expect ok",
		 dir, library, getenv("VGPU_TEST_FAKE"));
	int code = run_with("", (char *const[]){"unshare", "-m", "sh", "-c", command, NULL},
			    (const char *const[]){"CUDA_DEVICE_MEMORY_LIMIT_0", "900m", "HAMICORE_TEST_LIMITS", "/dev/null", NULL});
	if (geteuid() != 0 || strstr(output, "unshare:") || strstr(output, "mount:"))
		printf("    not run: no mount namespace here\n");
	else
		CHECK_EQ(code, 0);
	if (test_failed_checks)
		printf("%s\n", output);
	done();
}

TEST_MAIN
