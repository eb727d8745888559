/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h: programs under libvgpu on a fake machine of their own: two devices of 1024 MiB;
 * the first in CUDA's order (PCI) is the second in NVML's. Include it once, first.
 */
#define _GNU_SOURCE
#include "testing.h"

#include <fcntl.h>
#include <sys/stat.h>

#define U0 "GPU-00000000-0000-0000-0000-000000000001"
#define U1 "GPU-11111111-0000-0000-0000-000000000002"
#define HEAD "vgpu-limits 1\nregion %s/vgpu.cache\n"
#define LIMITS HEAD "device 0 " U0 " memory=67108864 cores=50\ndevice 1 " U1 " memory=0 cores=0\n"

static char dir[128];
static char output[65536]; /* of the last program */

static void write_file(const char *name, const char *format)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	fprintf(f, format, dir);
#pragma GCC diagnostic pop
	fclose(f);
}

/* A machine of its own for each test, with these limits (NULL: no file). */
static void machine(const char *limits)
{
	char path[256];
	snprintf(dir, sizeof dir, "%s/vgpu-preload-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	CHECK(mkdtemp(dir) != NULL);
	CHECK(!chmod(dir, 01777)); /* as in containers: their users differ */
	write_file("topology", "fakegpu 1\ndriver 580.95.05 cuda 13.0\n"
			       "gpu model=\"B\" memory=1024MiB pci=0000:0f:00.0 uuid=" U1 "\n"
			       "gpu model=\"A\" memory=1024MiB pci=0000:07:00.0 uuid=" U0 "\n");
	if (limits)
		write_file("limits", limits);
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s/nvidia%d", dir, i);
		CHECK(!symlink("/dev/null", path)); /* a character device, without needing root */
	}
}

static void set_path(const char *name, const char *file)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%s", dir, file);
	setenv(name, path, 1);
}

static void become(const char *library, char *const argv[], const char *const *variables)
{
	char third[256];
	snprintf(third, sizeof third, "%s/test/test/third.so", getenv("VGPU_TEST_BUILD"));
	setenv("PROBE_THIRD", third, 1);
	snprintf(third, sizeof third, "%s/test/test/plugin.so", getenv("VGPU_TEST_BUILD"));
	setenv("PROBE_PLUGIN", third, 1);
	setenv("FAKEGPU_DIR", dir, 1);
	setenv("FAKEGPU_DEV", dir, 1);
	/* nothing is freed at exit; and the probe for signals wants none of the sanitizer's own */
	setenv("ASAN_OPTIONS", "detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_sigill=0:handle_sigfpe=0", 1);
	setenv("TSAN_OPTIONS", "die_after_fork=0:handle_segv=0:handle_sigbus=0:handle_sigill=0:handle_sigfpe=0:handle_abort=0:handle_sigtrap=0", 1);
	set_path("HAMICORE_TEST_LIMITS", "limits");
	set_path("PROBE_REGION", "vgpu.cache");
	set_path("CUDA_DEVICE_MEMORY_SHARED_CACHE", "vgpu.cache");
	for (; variables && *variables; variables += 2)
		setenv(variables[0], variables[1], 1);
	setenv("LD_PRELOAD", library, 1);
	alarm(TEST_SECONDS - 10);
	execvp(argv[0], argv);
	_exit(127);
}

/* Runs a program under `library`; its exit code. What it prints is in `output`. */
static int run_with(const char *library, char *const argv[], const char *const *variables)
{
	int out[2], status;
	size_t n = 0;
	ssize_t r;
	CHECK(!pipe(out));
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(out[1], 1);
		dup2(out[1], 2);
		close(out[0]);
		close(out[1]);
		become(library, argv, variables);
	}
	close(out[1]);
	while (n < sizeof output - 1 && (r = read(out[0], output + n, sizeof output - 1 - n)) > 0)
		n += (size_t)r;
	output[n] = 0;
	close(out[0]);
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

__attribute__((unused)) static int run(char *const argv[], const char *const *variables)
{
	return run_with(getenv("VGPU_TEST_PRELOAD"), argv, variables);
}

/* Runs a probe under `library` and fails the test with its output when it does not end well. */
static void probe_left(const char *library, const char *name, const char *const *variables)
{
	char path[256];
	snprintf(path, sizeof path, "%s/test/test/probe", getenv("VGPU_TEST_BUILD"));
	int code = run_with(library, (char *const[]){path, (char *)name, NULL}, variables);
	if (code)
		printf("    probe %s ended with %d:\n%s\n", name, code, output);
	CHECK_EQ(code, 0);
}

/* The same, and the next one finds no region. */
__attribute__((unused)) static void probe_with(const char *library, const char *name, const char *const *variables)
{
	char path[256];
	probe_left(library, name, variables);
	snprintf(path, sizeof path, "%s/vgpu.cache", dir);
	CHECK(!unlink(path) || errno == ENOENT);
}

/* Runs a probe and leaves its region to the next. */
__attribute__((unused)) static void probe_once(const char *name, const char *const *variables)
{
	probe_left(getenv("VGPU_TEST_PRELOAD"), name, variables);
}

__attribute__((unused)) static void probe(const char *name, const char *const *variables)
{
	probe_with(getenv("VGPU_TEST_PRELOAD"), name, variables);
}

__attribute__((unused)) static int client(const char *const *variables, const char *steps)
{
	char text[512], *argv[64], *save, path[256];
	int n = 0;
	snprintf(path, sizeof path, "%s/cudaclient", getenv("VGPU_TEST_FAKE"));
	snprintf(text, sizeof text, "%s", steps);
	argv[n++] = path;
	for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save))
		argv[n++] = w;
	argv[n] = NULL;
	return run(argv, variables);
}

/* The most that the card ever gave out at one instant, by its own count. */
__attribute__((unused)) static unsigned long long peak(void)
{
	char path[256];
	unsigned long long bytes = ~0ULL;
	snprintf(path, sizeof path, "%s/fakegpuctl", getenv("VGPU_TEST_FAKE"));
	CHECK_EQ(run_with("", (char *const[]){path, "peak", "1", NULL}, NULL), 0);
	const char *at = strstr(output, "bytes=");
	CHECK(at && sscanf(at, "bytes=%llu", &bytes) == 1);
	return bytes;
}

static void done(void)
{
	if (!test_failed_checks && remove_folder(dir))
		printf("    cannot remove %s\n", dir);
}

/*
 * Runs a command in a mount namespace of its own where the product is installed as in a
 * container: library and limits in /usr/local/vgpu, the library in /etc/ld.so.preload.
 */
__attribute__((unused)) static void in_container(const char *limits, const char *command)
{
	char text[2048];
	machine(limits);
	snprintf(text, sizeof text,
		 "mount -t tmpfs none /usr/local && mkdir /usr/local/vgpu && cp %s/libvgpu.so /usr/local/vgpu/ && "
		 "{ [ ! -e %s/limits ] || cp %s/limits /usr/local/vgpu/; } && "
		 "mount -t tmpfs none /etc && echo /usr/local/vgpu/libvgpu.so > /etc/ld.so.preload && "
		 "export DIR=%s FAKE=%s CLEAN='env -i FAKEGPU_DIR=%s FAKEGPU_DEV=%s LD_LIBRARY_PATH=%s' CLIENT=%s/cudaclient && %s",
		 getenv("VGPU_TEST_BUILD"), dir, dir, dir, getenv("VGPU_TEST_FAKE"), dir, dir, getenv("VGPU_TEST_FAKE"), getenv("VGPU_TEST_FAKE"), command);
	int code = run_with("", (char *const[]){"unshare", "-m", "sh", "-c", text, NULL}, NULL);
	if (geteuid() != 0 || strstr(output, "unshare:") || strstr(output, "mount:"))
		printf("    not run: no mount namespace here\n");
	else
		CHECK_EQ(code, 0);
	if (test_failed_checks)
		printf("%s\n", output);
	done();
}
