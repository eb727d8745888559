/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases_test.c: what programs do, each on drivers of six CUDA versions. It prints one line per case
 * with a column per driver: ok, FAILED, or - where the driver has not got the functions (or a
 * sanitizer is in the way, or it takes root).
 */
#include "machine.h"

static const struct {
	const char *name;
	int number; /* 1000 * major + 10 * minor */
} drivers[] = {{"11.0", 11000}, {"11.4", 11040}, {"12.0", 12000}, {"12.4", 12040}, {"12.8", 12080}, {"13.0", 13000}};
#define DRIVERS (int)(sizeof drivers / sizeof *drivers)

#define MAP(...) (const char *const[]){__VA_ARGS__, NULL}

/* Regions that were there before the program. */
static void region_short(const char *path)
{
	CHECK(!truncate(path, 100000));
}

static void region_alien(const char *path)
{
	char text[14 * 1000];
	int fd = open(path, O_WRONLY | O_TRUNC);
	for (int i = 0; i < 1000; i++)
		memcpy(text + (size_t)i * 14, "something else", 14);
	for (int i = 0; i < 200; i++)
		CHECK_EQ(write(fd, text, sizeof text), sizeof text);
	close(fd);
}

static void region_stale(const char *path)
{
	int fd = open(path, O_WRONLY); /* a slot of a process that is gone, and another limit */
	CHECK_EQ(pwrite(fd, "\0\0\0\001", 4, 1600), 4);
	CHECK_EQ(pwrite(fd, "\377\177\0\0", 4, 1856), 4);
	close(fd);
}

static void region_empty(const char *path)
{
	CHECK(!truncate(path, 0));
}

#define ABOVE_CARD HEAD "device 0 " U0 " memory=1610612736 cores=0\ndevice 1 " U1 " memory=0 cores=0\n"

struct a_case {
	const char *text, *probe;
	int since; /* the youngest function in it */
	const char *const *variables;
	const char *limits; /* NULL: LIMITS; "": no file */
	void (*region)(const char *path);
	int root;
	int preload_only; /* a sanitizer does not bear it */
	int standing_in;  /* for the driver's library, with nothing preloaded */
};

static const struct a_case cases[] = {
	{.text = "names, versions and variants are the driver's", .probe = "generation"},
	{.text = "plain memory: exact, error 2, usable after it", .probe = "exact"},
	{.text = "small pieces share pages, exact to the page", .probe = "small"},
	{.text = "managed and pitched memory: exact", .probe = "kinds"},
	{.text = "the API before 3.2: exact", .probe = "version-one"},
	{.text = "pools: exact, per-thread twins too", .probe = "pools", .since = 11020},
	{.text = "a pool's granule beyond the limit is given back", .probe = "granule", .since = 11020},
	{.text = "a pool of another device is charged there", .probe = "pool-of-own", .since = 11020},
	{.text = "a stream of another device draws on that", .probe = "foreign-stream", .since = 11020},
	{.text = "what a pool gave back when synchronising is free", .probe = "synchronised", .since = 11020},
	{.text = "physical handles and mappings: exact", .probe = "mappings"},
	{.text = "released while mapped: charged until unmapped", .probe = "early-release"},
	{.text = "handles without a context", .probe = "off-context"},
	{.text = "handles by eight threads", .probe = "handle-threads"},
	{.text = "memory of the host is not the device's", .probe = "host-location", .since = 12000},
	{.text = "a pool in the host is not the device's", .probe = "host-pool", .since = 12020},
	{.text = "arrays and mipmaps: exact by shape", .probe = "arrays"},
	{.text = "memory in sparse arrays: charged until unmapped", .probe = "sparse", .since = 11010},
	{.text = "managed pools: exact", .probe = "pool-managed", .since = 13000},
	{.text = "memory of graphs: exact", .probe = "graph-memory", .since = 11040},
	{.text = "a context takes its memory along", .probe = "contexts"},
	{.text = "contexts count", .probe = "context-charged", .since = 12050},
	{.text = "green contexts cost nothing beside the primary one", .probe = "green", .since = 12040},
	{.text = "a context that is attached and detached", .probe = "detached"},
	{.text = "code counts", .probe = "code-charged", .since = 12000},
	{.text = "a share below a context starts and has nothing", .probe = "context-over"},
	{.text = "imported memory is its exporter's (IPC)", .probe = "imported"},
	{.text = "imported memory is its exporter's (handles)", .probe = "shared-handles"},
	{.text = "imported memory is its exporter's (external)", .probe = "external"},
	{.text = "beyond the card, from the host", .probe = "oversubscribed", .limits = ABOVE_CARD "oversubscribe on\n"},
	{.text = "beyond the card, not allowed: refused", .probe = "not-oversubscribed", .limits = ABOVE_CARD},
	{.text = "beyond the card, not possible: refused", .probe = "not-oversubscribed", .limits = ABOVE_CARD "oversubscribe on\n",
	 .variables = MAP("FAKEGPU_MANAGED", "device")},
	{.text = "a share above the card, and none, show the card", .probe = "above-card", .limits = ABOVE_CARD},
	{.text = "two processes race: the limit and no more", .probe = "two-race"},
	{.text = "sixteen processes race: the limit and no more", .probe = "race"},
	{.text = "eight threads share the limit", .probe = "threads"},
	{.text = "fork without exec", .probe = "forked"},
	{.text = "fork and exec, vfork and exec, posix_spawn", .probe = "spawned"},
	{.text = "SIGKILL gives everything back", .probe = "killed"},
	{.text = "SIGKILL with the region's lock held", .probe = "lock-holder"},
	{.text = "a name that looks like a state in /proc", .probe = "odd-name"},
	{.text = "a change of user, and another user's process", .probe = "user-change", .root = 1},
	{.text = "a stale region", .probe = "exact", .region = region_stale},
	{.text = "a truncated region", .probe = "exact", .region = region_short},
	{.text = "an emptied region", .probe = "exact", .region = region_empty},
	{.text = "an alien region", .probe = "exact", .region = region_alien},
	{.text = "a region written to by the tenant", .probe = "region-written"},
	{.text = "a region whose old locks are held by the dead", .probe = "odd-sequence"},
	{.text = "CUDA_VISIBLE_DEVICES: subset", .probe = "exact", .variables = MAP("CUDA_VISIBLE_DEVICES", "0")},
	{.text = "CUDA_VISIBLE_DEVICES: other order", .probe = "second-limited", .variables = MAP("CUDA_VISIBLE_DEVICES", "1,0")},
	{.text = "CUDA_VISIBLE_DEVICES: UUIDs", .probe = "second-limited", .variables = MAP("CUDA_VISIBLE_DEVICES", U1 "," U0)},
	{.text = "limits of the environment", .probe = "exact", .limits = "", .variables = MAP("CUDA_DEVICE_MEMORY_LIMIT", "64MiB")},
	{.text = "nonsense in the environment is no limit", .probe = "unlimited", .limits = "",
	 .variables = MAP("CUDA_DEVICE_MEMORY_LIMIT", "1gb5", "CUDA_DEVICE_SM_LIMIT", "-5")},
	{.text = "limits that cannot be read refuse", .probe = "refused", .limits = "vgpu-limits 9\n", .since = 11020},
	{.text = "cuGetProcAddress: version, flags, status", .probe = "proc-address", .since = 12000},
	{.text = "cuGetProcAddress: per-thread twins", .probe = "per-thread", .since = 11030},
	{.text = "cuGetProcAddress: one name, two meanings", .probe = "advice", .since = 12020},
	{.text = "a driver with two pointers per function", .probe = "two-pointers", .since = 11030,
	 .variables = MAP("FAKEGPU_PROC_POINTERS", "other")},
	{.text = "a driver that looks itself up", .probe = "exact", .variables = MAP("FAKEGPU_SELF_LOOKUP", "1")},
	{.text = "RTLD_DEEPBIND", .probe = "deepbind", .preload_only = 1},
	{.text = "dlmopen", .probe = "dlmopen", .preload_only = 1},
	{.text = "dlmopen of the driver itself", .probe = "dlmopen-driver", .preload_only = 1},
	{.text = "standing in: exact", .probe = "exact", .standing_in = 1},
	{.text = "standing in: names, versions, variants", .probe = "generation", .standing_in = 1},
	{.text = "standing in: handles and mappings", .probe = "mappings", .standing_in = 1},
	{.text = "standing in: pools", .probe = "pools", .since = 11020, .standing_in = 1},
	{.text = "standing in: RTLD_DEEPBIND", .probe = "deepbind", .standing_in = 1},
	{.text = "standing in: dlmopen", .probe = "dlmopen", .standing_in = 1},
	{.text = "standing in: a driver that looks itself up", .probe = "exact", .standing_in = 1, .variables = MAP("FAKEGPU_SELF_LOOKUP", "1")},
	{.text = "RTLD_NEXT from a third library, repeatedly", .probe = "rtld-next"},
	{.text = "names that only look like the driver's", .probe = "versioned-lookup"},
	{.text = "NULL arguments", .probe = "null-arguments", .since = 11020},
	{.text = "pointers and handles nobody knows", .probe = "unknown-pointers", .since = 11020},
	{.text = "freed with another device current, or none", .probe = "freed-elsewhere"},
	{.text = "freed twice", .probe = "freed-twice"},
	{.text = "a failure of the driver gives back", .probe = "injected", .variables = MAP("FAKEGPU_FAIL", "cuMemAlloc:2:999")},
	{.text = "a late failure of a pool gives back", .probe = "late-failure", .since = 11020,
	 .variables = MAP("FAKEGPU_FAIL", "cuMemAllocAsync:2:999")},
	{.text = "a recording stays whole", .probe = "capture", .since = 11020},
	{.text = "a recording by a thread's default stream, too", .probe = "capture-per-thread", .since = 11020},
	{.text = "a kernel on several devices is charged to each", .probe = "several-devices",
	 .limits = HEAD "device 0 " U0 " memory=0 cores=90\ndevice 1 " U1 " memory=0 cores=90\n"},
	{.text = "NVML: memory, both versions, by UUID", .probe = "nvml"},
	{.text = "NVML: process lists, three versions", .probe = "process-lists"},
	{.text = "NVML: list of details", .probe = "details"},
	{.text = "NVML: time by process", .probe = "utilisation", .since = 11020},
	{.text = "NVML: time by process, PIDs of the host", .probe = "utilisation", .since = 11020, .variables = MAP("FAKEGPU_NVML_PROCESSES", "host")},
	{.text = "a program without CUDA", .probe = "untouched"},
};
#define CASES (int)(sizeof cases / sizeof *cases)

/*
 * Where the driver's libraries are found: those of one version; behind the one that stands in for
 * them.
 */
static void set_library_path(const struct a_case *c, int d)
{
	char path[1024], driver[512], link[256];
	snprintf(driver, sizeof driver, "%s/cuda-%s", getenv("VGPU_TEST_FAKE"), drivers[d].name);
	snprintf(path, sizeof path, "%s:%s", driver, getenv("VGPU_TEST_FAKE"));
	if (c->standing_in) {
		snprintf(path, sizeof path, "%s:%s/test/standin:%s", dir, getenv("VGPU_TEST_BUILD"), getenv("VGPU_TEST_FAKE"));
		snprintf(link, sizeof link, "%s/libcuda.so.driver", dir);
		strcat(driver, "/libcuda.so.1");
		CHECK(!symlink(driver, link));
	}
	setenv("LD_LIBRARY_PATH", path, 1);
	snprintf(path, sizeof path, "%d", drivers[d].number);
	setenv("PROBE_CUDA", path, 1);
}

/* One case on one driver, in a child: 0 when it held. */
static int held(const struct a_case *c, int d)
{
	int status = 0;
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		char region[256];
		alarm(TEST_SECONDS);
		machine(!c->limits ? LIMITS : *c->limits ? c->limits : NULL);
		set_library_path(c, d);
		snprintf(region, sizeof region, "%s/vgpu.cache", dir);
		if (c->region) {
			probe_once("exact", NULL);
			c->region(region);
		}
		probe_with(c->standing_in ? "" : getenv("VGPU_TEST_PRELOAD"), c->probe, c->variables);
		done();
		fflush(stdout);
		_exit(test_failed_checks ? 1 : 0);
	}
	waitpid(pid, &status, 0);
	return status;
}

static const char *answer(const struct a_case *c, int d, int *passed, int *failed)
{
	int sanitized = strstr(getenv("VGPU_TEST_PRELOAD"), "san") != NULL;
	if (drivers[d].number < c->since || (c->root && geteuid()) || (c->preload_only && sanitized))
		return "-";
	if (held(c, d))
		return ++*failed, "FAILED";
	return ++*passed, "ok";
}

int main(int argc, char **argv)
{
	int passed = 0, failed = 0;
	printf("%-52s", "driver of CUDA");
	for (int d = 0; d < DRIVERS; d++)
		printf(" %5s", drivers[d].name);
	printf("\n");
	for (int i = 0; i < CASES; i++) {
		char row[128] = "";
		if (argc > 1 && !strstr(cases[i].text, argv[1]))
			continue;
		for (int d = 0; d < DRIVERS; d++)
			snprintf(row + strlen(row), sizeof row - strlen(row), " %5s", answer(&cases[i], d, &passed, &failed));
		printf("%-52s%s\n", cases[i].text, row);
		fflush(stdout);
	}
	printf("%d passed, %d failed\n", passed, failed);
	return failed ? 1 : 0;
}
