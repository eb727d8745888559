/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limiter_test.c: programs under LD_PRELOAD=libvgpu.so that want all of a fake device's time, in
 * real time: each takes a second or so. A share is asserted upwards strictly; downwards loosely, at the third
 * attempt at the latest, because a busy test machine takes from it. shares_test.c asserts both, on the fake's clock.
 */
#define _GNU_SOURCE
#include "testing.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

#include "hamicore_abi.h"

#define UUID "GPU-00000000-0000-0000-0000-000000000001"
#define OTHER "GPU-00000000-0000-0000-0000-000000000002"

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

/* A container's files among neighbours. */
static void neighbour(const char *name, unsigned cores)
{
	char file[64], text[512];
	snprintf(file, sizeof file, "%s.demand", name);
	write_file(file, "");
	snprintf(file, sizeof file, "%s.share", name);
	snprintf(text, sizeof text, "vgpu-limits 1\ndevice 0 " UUID " memory=0 cores=%u\n", cores);
	write_file(file, text);
}

/* The container whose limits file this is reads and writes them. */
static void among_neighbours(const char *name, unsigned cores)
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
	pid_t pid = client("limits", steps, &fd);
	CHECK_EQ(finish(pid, fd), 0);
	return reported("fraction=");
}

/* A sanitizer slows the programs down, too: there nothing is asked but no more than the share. */
static double at_least(double share)
{
	return strstr(getenv("VGPU_TEST_PRELOAD"), "san.so") ? 0 : share;
}

/* The steps' fraction lies between the two, at the third attempt at the latest; never above. */
static void expect_share(const char *steps, double least, double most)
{
	double share = -1;
	least = at_least(least);
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

TEST("a process at 30 % gets no more than 32, whatever the length of its kernels")
{
	machine(30, "default");
	expect_share("busy 2 0.02", 0.15, 0.32);
	expect_share("busy 2 1.4", 0.15, 0.32);
	expect_share("busy 3 20", 0.15, 0.33); /* a kernel is 0.7 % of that time */
	done();
}

TEST("a pause is not paid for when a kernel that is new follows it")
{
	machine(30, "default");
	expect_share("busy 1 1 sleep 2 busy 1 0.7", 0.55, 0.75); /* the two fractions' sum; 0.37 if it is */
	done();
}

TEST("two processes of a container share one limit")
{
	machine(30, "force");
	expect_share("fork 2 busy 2 1", 0.15, 0.32);
	done();
}

static void two_containers(int neighbours)
{
	int a = 0, b = 0, ok = 0;
	double first = 0, second = 0;
	machine(30, "default");
	container("other", 70, "default");
	if (neighbours) {
		among_neighbours("limits", 30);
		among_neighbours("other", 70);
	}
	for (int i = 0; i < 3 && !ok; i++) {
		pid_t one = client("limits", "busy 3 0.5", &a), two = client("other", "busy 3 0.5", &b);
		CHECK_EQ(finish(one, a), 0);
		first = reported(neighbours ? "middle=" : "fraction="); /* one alone borrows */
		CHECK_EQ(finish(two, b), 0);
		second = reported(neighbours ? "middle=" : "fraction=");
		ok = first >= at_least(0.15) && second >= at_least(0.35);
		CHECK(first < 0.33 && second < 0.73);
	}
	printf("    two containers: %.3f and %.3f\n", first, second);
	CHECK(ok);
	done();
}

TEST("two containers at 30 and 70 get that")
{
	two_containers(0);
}

TEST("two neighbours at 30 and 70 get that, taking turns")
{
	two_containers(1);
}

TEST("policy disable and no share limit nothing; no memory limit is needed for a share")
{
	machine(30, "disable");
	expect_share("busy 0.5 1", 0.5, 1.02);
	container("limits", 0, "default");
	expect_share("busy 0.5 1", 0.5, 1.02);
	container("limits", 100, "force");
	expect_share("busy 0.5 1", 0.5, 1.02);
	done();
}

TEST("alone among neighbours a container has the device, whatever it may, with several processes too")
{
	machine(30, "default");
	among_neighbours("limits", 30);
	neighbour("other", 70);
	expect_share("busy 1 1", 0.5, 1.02);
	expect_share("fork 2 busy 1 1", 0.5, 2); /* they may start one after the other */
	done();
}

TEST("a monitor's switch suspends the share, but not where it is forced")
{
	machine(30, "default");
	CHECK_EQ(busy("launch 1") > 0, 0);
	struct vgpu_region *m = map_region();
	CHECK_EQ(m->hami.utilization_switch, 1);
	m->hami.utilization_switch = 0;
	expect_share("busy 0.5 1", 0.5, 1.02);
	container("limits", 30, "force");
	expect_share("busy 2 1", 0.15, 0.32);
	done();
}

TEST("nobody's switch suspends the share of a container that borrows by itself")
{
	machine(30, "default");
	among_neighbours("limits", 30);
	neighbour("other", 70);
	CHECK_EQ(busy("launch 1") > 0, 0);
	write_file("other.share", "not to be read"); /* then nothing is borrowed */
	map_region()->hami.utilization_switch = 0;
	expect_share("busy 2 1", 0.15, 0.32);
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
	among_neighbours("limits", 50);
	CHECK_EQ(probe("limits", "streams"), 0);
	CHECK_EQ(probe("limits", "contexts"), 0);
	CHECK_EQ(probe("limits", "threads"), 0);
	CHECK_EQ(probe("limits", "forked"), 0);
	done();
}

/* Two devices at these shares. */
static void two_devices(unsigned first, unsigned second)
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

TEST("a thread that goes between devices is held on the one that has a limit, and there alone")
{
	two_devices(20, 0);
	CHECK_EQ(probe("limits", "devices"), 0);
	done();
}

TEST("work goes to the device of its stream, whatever context is current, or none")
{
	two_devices(20, 0);
	CHECK_EQ(probe("limits", "strangers"), 0);
	done();
}

TEST("launches on several devices at once give their events back")
{
	two_devices(50, 50);
	CHECK_EQ(probe("limits", "together"), 0);
	done();
}

TEST("a device that takes nothing more holds up no launch on another")
{
	two_devices(50, 50);
	CHECK_EQ(probe("limits", "once"), 0);
	map_region()->hami.utilization_switch = 0;
	CHECK_EQ(probe("limits", "blocked"), 0);
	done();
}

TEST("a thread that ends pays for what it has launched, and gives its events back")
{
	machine(20, "force");
	CHECK_EQ(probe("limits", "requests"), 0);
	done();
}

TEST("a context that goes leaves what others have launched to be paid")
{
	machine(20, "force");
	CHECK_EQ(probe("limits", "bystanders"), 0);
	done();
}

TEST("a context that goes has paid for its work, waited for or not")
{
	machine(20, "force");
	CHECK_EQ(probe("limits", "departures"), 0);
	done();
}

TEST("a process that ends leaves its debt to the next one of the container")
{
	struct timespec a, b;
	machine(20, "force");
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < 6; i++) /* 60 ms each */
		CHECK_EQ(probe("limits", "once"), 0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	double took = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
	printf("    six processes of 60 ms: %.3f s\n", took);
	CHECK(took > 1.2);
	done();
}

TEST("loading code is no work of the device, but a launch that waits for its work is")
{
	machine(10, "force");
	setenv("FAKEGPU_LOAD_MS", "300", 1);
	CHECK_EQ(probe("limits", "loading"), 0);
	unsetenv("FAKEGPU_LOAD_MS");
	container("limits", 20, "force");
	setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
	CHECK_EQ(probe("limits", "blocking"), 0);
	done();
}

TEST_MAIN
