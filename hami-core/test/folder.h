/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.h: tests that need devices and limits of their own. It makes a folder with a fake device
 * of 1 GiB and a limits file, and runs programs there under the library: in real time, or on the
 * fake driver's clock. Include it once, before anything else.
 */
#define _GNU_SOURCE
#include "testing.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>

#define UUID "GPU-00000000-0000-0000-0000-000000000001"
#define DEVICE "gpu model=\"A\" memory=1024MiB pci=0000:07:00.0 uuid=" UUID "\n"

static char dir[128];

static void write_file(const char *name, const char *text)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	fputs(text, f);
	fclose(f);
}

/* The device with this number: what the topology says of all of them, and its node. */
static void add_device(int number, const char *devices)
{
	char path[256], text[512];
	snprintf(text, sizeof text, "fakegpu 1\ndriver 580.95.05 cuda 13.0\n%s", devices);
	write_file("topology", text);
	snprintf(path, sizeof path, "%s/nvidia%d", dir, number);
	CHECK(!symlink("/dev/null", path));
}

static void make_folder(void)
{
	snprintf(dir, sizeof dir, "%s/vgpu-folder-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	CHECK(mkdtemp(dir) != NULL);
	add_device(0, DEVICE);
}

static void done(void)
{
	if (!test_failed_checks && remove_folder(dir))
		printf("    cannot remove %s\n", dir);
}

/*
 * Keeps to one processor, as all programs on the clock do: one of their threads runs at a time, and
 * handing the clock to one that sleeps on another processor takes three times as long.
 */
static void keep_to_one_processor(void)
{
	cpu_set_t all, one;
	int first = 0;
	if (sched_getaffinity(0, sizeof all, &all))
		return;
	while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, &all))
		first++;
	CPU_ZERO(&one);
	CPU_SET(first, &one);
	sched_setaffinity(0, sizeof one, &one);
}

/*
 * In a child: becomes the program, held by the folder's file of that name; at a place of the
 * clock's, if there are any.
 */
static void become(const char *limits, int place, int places, const char *command)
{
	char text[1024];
	snprintf(text, sizeof text, "%s/%s", dir, limits);
	setenv("HAMICORE_TEST_LIMITS", text, 1);
	setenv("FAKEGPU_DIR", dir, 1);
	setenv("FAKEGPU_DEV", dir, 1);
	snprintf(text, sizeof text, "%d/%d", place, places);
	if (places) {
		setenv("FAKEGPU_CLOCK", text, 1);
		keep_to_one_processor();
	}
	setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
	snprintf(text, sizeof text, "LD_PRELOAD='%s' exec %s", getenv("VGPU_TEST_PRELOAD"), command);
	alarm(TEST_SECONDS - 10);
	execl("/bin/sh", "sh", "-c", text, (char *)NULL);
	_exit(127);
}
