/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limiter_test.c: programs under LD_PRELOAD=libvgpu.so that want all of a fake device's time, in
 * real time: each takes a second or so. A share is asserted upwards strictly; downwards a busy
 * test machine is given three attempts.
 */
#define _GNU_SOURCE
#include "testing.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

#include "hamicore_abi.h"

#define UUID "GPU-00000000-0000-0000-0000-000000000001"

static char dir[128];
static char output[8192];

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

static void done(void)
{
	char command[256];
	snprintf(command, sizeof command, "rm -rf %s", dir);
	if (!test_failed_checks && system(command))
		printf("    cannot remove %s\n", dir);
}

/* Starts a program in a container; its output is to be read from the descriptor. */
static pid_t start(const char *limits, const char *command, int *out)
{
	int ends[2];
	CHECK(!pipe2(ends, O_CLOEXEC));
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		char path[256];
		dup2(ends[1], 1);
		dup2(ends[1], 2);
		snprintf(path, sizeof path, "%s/%s", dir, limits);
		setenv("HAMICORE_TEST_LIMITS", path, 1);
		setenv("FAKEGPU_DIR", dir, 1);
		setenv("FAKEGPU_DEV", dir, 1);
		setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
		char text[1024];
		snprintf(text, sizeof text, "LD_PRELOAD='%s' exec %s", getenv("VGPU_TEST_PRELOAD"), command);
		if (!strcmp(limits, "bare"))
			snprintf(text, sizeof text, "exec %s", command);
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

static pid_t client(const char *limits, const char *steps, int *out)
{
	char command[512];
	snprintf(command, sizeof command, "%s/cudaclient %s", getenv("VGPU_TEST_FAKE"), steps);
	return start(limits, command, out);
}

/* Sum of the fractions of the device's time that the last program's processes report. */
static double fractions(void)
{
	double sum = 0;
	for (const char *p = output; (p = strstr(p, "fraction=")) != NULL; p++)
		sum += atof(p + 9);
	return sum;
}

static double busy(const char *steps)
{
	int fd;
	pid_t pid = client("limits", steps, &fd);
	CHECK_EQ(finish(pid, fd), 0);
	return fractions();
}

/* The steps' fraction lies between the two, at the third attempt at the latest; never above. */
static void expect_share(const char *steps, double least, double most)
{
	double share = 0;
	for (int i = 0; i < 3 && share < least; i++)
		share = busy(steps);
	if (share < least || share > most)
		printf("    %s: %.3f, want %.2f to %.2f\n%s\n", steps, share, least, most, output);
	CHECK(share >= least && share <= most);
}

static int probe(const char *limits, const char *name)
{
	char command[512];
	int fd;
	snprintf(command, sizeof command, "%s/test/test/probe_launch %s", getenv("VGPU_TEST_BUILD"), name);
	pid_t pid = start(limits, command, &fd);
	int code = finish(pid, fd);
	if (code)
		printf("    probe %s ended with %d:\n%s\n", name, code, output);
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

TEST("a process at 30 % gets 28 to 32, whatever the length of its kernels")
{
	machine(30, "default");
	expect_share("busy 2 0.02", 0.28, 0.32);
	expect_share("busy 2 1.4", 0.28, 0.32);
	expect_share("busy 3 20", 0.27, 0.33); /* a kernel is 0.7 % of that time */
	done();
}

TEST("two processes of a container share one limit")
{
	machine(30, "force");
	expect_share("fork 2 busy 2 1", 0.28, 0.32);
	done();
}

TEST("two containers at 30 and 70 get that")
{
	int a = 0, b = 0, ok = 0;
	double first = 0, second = 0;
	machine(30, "default");
	container("other", 70, "default");
	for (int i = 0; i < 3 && !ok; i++) {
		pid_t one = client("limits", "busy 3 0.5", &a), two = client("other", "busy 3 0.5", &b);
		CHECK_EQ(finish(one, a), 0);
		first = fractions();
		CHECK_EQ(finish(two, b), 0);
		second = fractions();
		ok = first > 0.27 && second > 0.63;
		CHECK(first < 0.33 && second < 0.73);
	}
	printf("    two containers: %.3f and %.3f\n", first, second);
	CHECK(ok);
	done();
}

TEST("policy disable and no share limit nothing; no memory limit is needed for a share")
{
	machine(30, "disable");
	expect_share("busy 0.5 1", 0.85, 1.01);
	container("limits", 0, "default");
	expect_share("busy 0.5 1", 0.85, 1.01);
	container("limits", 100, "force");
	expect_share("busy 0.5 1", 0.85, 1.01);
	done();
}

TEST("a monitor's switch suspends the share, but not where it is forced")
{
	machine(30, "default");
	CHECK_EQ(busy("launch 1") > 0, 0);
	struct vgpu_region *m = map_region();
	CHECK_EQ(m->hami.utilization_switch, 1);
	m->hami.utilization_switch = 0;
	expect_share("busy 0.5 1", 0.85, 1.01);
	container("limits", 30, "force");
	expect_share("busy 2 1", 0.28, 0.32);
	done();
}

/* Seconds that a program needs for a launch while the monitor holds it for 0.3 s. */
static double held(void)
{
	struct timespec a, b;
	int fd;
	struct vgpu_region *m = map_region();
	m->hami.recent_kernel = -1;
	m->hami.last_kernel_time = 0;
	clock_gettime(CLOCK_MONOTONIC, &a);
	pid_t pid = client("limits", "launch 1", &fd);
	usleep(300000);
	CHECK_EQ(m->hami.recent_kernel, -1);
	CHECK_EQ(m->hami.last_kernel_time, 0);
	m->hami.recent_kernel = 0;
	CHECK_EQ(finish(pid, fd), 0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	CHECK_EQ(m->hami.recent_kernel, 2);
	CHECK(m->hami.last_kernel_time + 5 > (uint64_t)time(NULL));
	return (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
}

TEST("a monitor's gate holds launches, limited or not, and launches stamp the region")
{
	machine(30, "default");
	busy("launch 1");
	CHECK(held() >= 0.3);
	container("limits", 0, "default");
	CHECK(held() >= 0.3);
	done();
}

TEST("every way to start work counts, graphs and per-thread twins included")
{
	machine(20, "force");
	CHECK_EQ(probe("limits", "ways"), 0);
	done();
}

TEST("a capture stays whole, and what it recorded is not charged until it runs")
{
	machine(20, "force");
	CHECK_EQ(probe("limits", "capture"), 0);
	done();
}

TEST("streams that run side by side, contexts that go, threads and forks leave the limiter sound")
{
	machine(50, "force");
	CHECK_EQ(probe("limits", "streams"), 0);
	CHECK_EQ(probe("limits", "contexts"), 0);
	CHECK_EQ(probe("limits", "threads"), 0);
	CHECK_EQ(probe("limits", "forked"), 0);
	done();
}

TEST("what a launch costs on the fake driver (printed only)")
{
	static const char *const names[] = {"bare", "unlimited", "99"};
	machine(30, "default");
	container("unlimited", 0, "default");
	container("99", 99, "default");
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(probe(names[i], "cost"), 0);
		printf("    %-10s %s", names[i], output);
	}
	done();
}

TEST_MAIN
