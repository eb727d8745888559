/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limited.h: programs under the library in containers with a share of a fake device. They run in
 * real time, or, where PLACES is not 0, on the fake driver's own clock, as many at once as
 * on_clock() has said. Include it once, first.
 */
#include "folder.h"

#include <sys/mman.h>
#include <time.h>

#include "hamicore_abi.h"

#ifndef PLACES
#define PLACES 0
#endif
#define OTHER "GPU-00000000-0000-0000-0000-000000000002"

static char output[8192];
static int places = PLACES;

/* From here on so many programs run at once, which are places 0, 1, ... of the clock. */
__attribute__((unused)) static void on_clock(int count)
{
	places = count;
}

/* A container on the machine: its limits file is `name`, its region name.cache. */
static void container(const char *name, unsigned cores, const char *policy)
{
	char text[512];
	snprintf(text, sizeof text,
		 "vgpu-limits 1\nregion %s/%s.cache\npolicy %s\ndevice 0 " UUID
		 " memory=0 cores=%u\n",
		 dir, name, policy, cores);
	write_file(name, text);
}

static void machine(unsigned cores, const char *policy)
{
	make_folder();
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

/*
 * Starts a program in a container; its output is to be read from the descriptor. The place is the
 * clock's, if there is one.
 */
static pid_t start(const char *limits, int place, const char *command, int *out)
{
	int ends[2];
	CHECK(!pipe2(ends, O_CLOEXEC));
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(ends[1], 1);
		dup2(ends[1], 2);
		become(limits, place, places, command);
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

/*
 * Sum of what the last program's processes report under a name: "fraction=" of the device's time,
 * or of "middle=" alone.
 */
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
	snprintf(command, sizeof command, "%s/test/test/probe_launch %s", getenv("VGPU_TEST_BUILD"),
		 name);
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
	char text[512];
	machine(first, "default");
	add_device(1, DEVICE "gpu model=\"A\" memory=1024MiB pci=0000:0f:00.0 uuid=" OTHER "\n");
	snprintf(text, sizeof text,
		 "vgpu-limits 1\nregion %s/limits.cache\ndevice 0 " UUID
		 " memory=0 cores=%u\ndevice 1 " OTHER " memory=0 cores=%u\n",
		 dir, first, second);
	write_file("limits", text);
}
