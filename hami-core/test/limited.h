/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limited.h: programs under the library in containers with a share of a fake device. They run in real time, or, where
 * PLACES is not 0, on the fake driver's own clock, as many at once as on_clock() has said. Include it once, first.
 */
#define _GNU_SOURCE
#include "testing.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

#include "hamicore_abi.h"

#ifndef PLACES
#define PLACES 0
#endif
#define UUID "GPU-00000000-0000-0000-0000-000000000001"
#define OTHER "GPU-00000000-0000-0000-0000-000000000002"

static char dir[128];
static char output[8192];
static int places = PLACES;

/* From here on so many programs run at once, which are places 0, 1, ... of the clock. */
__attribute__((unused)) static void on_clock(int count)
{
	places = count;
}

static void write_file(const char *name, const char *text)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	fputs(text, f);
	fclose(f);
}

/* A container on the machine: its limits file is `name`, its region name.cache. */
static void container(const char *name, unsigned cores, const char *policy)
{
	char text[512];
	snprintf(text, sizeof text, "vgpu-limits 1\nregion %s/%s.cache\npolicy %s\ndevice 0 " UUID " memory=0 cores=%u\n", dir,
		 name, policy, cores);
	write_file(name, text);
}

static void machine(unsigned cores, const char *policy)
{
	char path[256];
	snprintf(dir, sizeof dir, "%s/vgpu-limiter-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	CHECK(mkdtemp(dir) != NULL);
	write_file("topology", "fakegpu 1\ndriver 580.95.05 cuda 13.0\ngpu model=\"A\" memory=1024MiB pci=0000:07:00.0 uuid=" UUID "\n");
	snprintf(path, sizeof path, "%s/nvidia0", dir);
	CHECK(!symlink("/dev/null", path));
	container("limits", cores, policy);
}

/* A container's files among neighbours. */
__attribute__((unused)) static void neighbour(const char *name, unsigned cores)
{
	char file[64], text[512];
	snprintf(file, sizeof file, "%s.demand", name);
	write_file(file, "");
	snprintf(file, sizeof file, "%s.share", name);
	snprintf(text, sizeof text, "vgpu-limits 1\ndevice 0 " UUID " memory=0 cores=%u\n", cores);
	write_file(file, text);
}

/* The container whose limits file this is reads and writes them. */
__attribute__((unused)) static void among_neighbours(const char *name, unsigned cores)
{
	char path[256];
	neighbour(name, cores);
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "a");
	fprintf(f, "borrow %s/%s\n", dir, name);
	fclose(f);
}

static void done(void)
{
	char command[256];
	snprintf(command, sizeof command, "rm -rf %s", dir);
	if (!test_failed_checks && system(command))
		printf("    cannot remove %s\n", dir);
}

/* Starts a program in a container; its output is to be read from the descriptor. The place is the clock's, if there is one. */
static pid_t start(const char *limits, int place, const char *command, int *out)
{
	int ends[2];
	CHECK(!pipe2(ends, O_CLOEXEC));
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		char path[256], clock[32];
		snprintf(clock, sizeof clock, "%d/%d", place, places);
		if (places)
			setenv("FAKEGPU_CLOCK", clock, 1);
		dup2(ends[1], 1);
		dup2(ends[1], 2);
		snprintf(path, sizeof path, "%s/%s", dir, limits);
		setenv("HAMICORE_TEST_LIMITS", path, 1);
		setenv("FAKEGPU_DIR", dir, 1);
		setenv("FAKEGPU_DEV", dir, 1);
		setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
		char text[1024];
		snprintf(text, sizeof text, "LD_PRELOAD='%s' exec %s", getenv("VGPU_TEST_PRELOAD"), command);
		alarm(50);
		execl("/bin/sh", "sh", "-c", text, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	*out = ends[0];
	return pid;
}

static int finish(pid_t pid, int fd)
{
	int status;
	size_t n = 0;
	ssize_t r;
	while (n < sizeof output - 1 && (r = read(fd, output + n, sizeof output - 1 - n)) > 0)
		n += (size_t)r;
	output[n] = 0;
	close(fd);
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static pid_t client(const char *limits, int place, const char *steps, int *out)
{
	char command[512];
	snprintf(command, sizeof command, "%s/cudaclient %s", getenv("VGPU_TEST_FAKE"), steps);
	return start(limits, place, command, out);
}

/* Sum of what the last program's processes report under a name: "fraction=" of the device's time, or of "middle=" alone. */
static double reported(const char *name)
{
	double sum = 0;
	for (const char *p = output; (p = strstr(p, name)) != NULL; p++)
		sum += atof(p + strlen(name));
	return sum;
}

static double busy(const char *steps)
{
	int fd;
	pid_t pid = client("limits", 0, steps, &fd);
	CHECK_EQ(finish(pid, fd), 0);
	return reported("fraction=");
}

/* The fractions of the steps add up to what lies between the two. */
static void expect_share(const char *steps, double least, double most)
{
	double share = busy(steps);
	if (share < least || share > most)
		printf("    %s: %.3f, want %.2f to %.2f\n%s\n", steps, share, least, most, output);
	CHECK(share >= least && share <= most);
}

static int probe(const char *limits, const char *name)
{
	char command[512];
	int fd;
	snprintf(command, sizeof command, "%s/test/test/probe_launch %s", getenv("VGPU_TEST_BUILD"), name);
	pid_t pid = start(limits, 0, command, &fd);
	int code = finish(pid, fd);
	if (code)
		printf("    probe %s ended with %d:\n", name, code);
	printf("%s", output);
	return code;
}

static struct vgpu_region *map_region(void)
{
	char path[256];
	snprintf(path, sizeof path, "%s/limits.cache", dir);
	int fd = open(path, O_RDWR);
	struct vgpu_region *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(fd >= 0 && m != MAP_FAILED);
	return m;
}

/* Two devices at these shares. */
__attribute__((unused)) static void two_devices(unsigned first, unsigned second)
{
	char path[256], text[512];
	machine(first, "default");
	write_file("topology", "fakegpu 1\ndriver 580.95.05 cuda 13.0\ngpu model=\"A\" memory=1024MiB pci=0000:07:00.0 uuid=" UUID "\n"
			       "gpu model=\"A\" memory=1024MiB pci=0000:0f:00.0 uuid=" OTHER "\n");
	snprintf(path, sizeof path, "%s/nvidia1", dir);
	CHECK(!symlink("/dev/null", path));
	snprintf(text, sizeof text, "vgpu-limits 1\nregion %s/limits.cache\ndevice 0 " UUID " memory=0 cores=%u\ndevice 1 " OTHER
				    " memory=0 cores=%u\n", dir, first, second);
	write_file("limits", text);
}
