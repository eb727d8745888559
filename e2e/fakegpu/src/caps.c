/* SPDX-License-Identifier: Apache-2.0 */
/* caps.c: the capability nodes that say who may see which instance, and who may make them. */
#define _GNU_SOURCE
#include "mig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* The real driver's table: 32 devices, 15 GPU instances, 8 compute instances, from number 3. */
#define GPUS 32
#define GIS 15
#define CIS 8
#define FIRST 3
#define MAJOR 237 /* the real one is given out at load time; any will do */

int fg_cap(int minor, unsigned gi, int ci)
{
	return FIRST + (minor * GIS + (int)gi) * (CIS + 1) + ci + 1;
}

static void path_of(int cap, char *out, size_t size)
{
	const char *dev = getenv("FAKEGPU_DEV");
	snprintf(out, size, "%s/nvidia-caps/nvidia-cap%d", dev && *dev ? dev : "/dev", cap);
}

int fg_cap_present(int cap)
{
	char path[512];
	struct stat st;
	path_of(cap, path, sizeof path);
	return stat(path, &st) == 0 && S_ISCHR(st.st_mode);
}

/* Where nodes cannot be made (no root), a link to /dev/null is a character device, too. */
static void make_node(int cap)
{
	char path[512];
	path_of(cap, path, sizeof path);
	if (mknod(path, S_IFCHR | 0666, makedev(MAJOR, (unsigned)cap)) && errno != EEXIST && symlink("/dev/null", path) && errno != EEXIST)
		fprintf(stderr, "fake GPU: cannot make %s: %s\n", path, strerror(errno));
}

/* A directory that is there already belongs to a host or to a container; only a host's is made. */
void fg_cap_make(int cap)
{
	char path[512];
	const char *dev = getenv("FAKEGPU_DEV");
	if (!dev || !*dev)
		return;
	snprintf(path, sizeof path, "%s/nvidia-caps", dev);
	if (mkdir(path, 0755) == 0) {
		make_node(FG_CAP_CONFIG);
		make_node(FG_CAP_MONITOR);
	}
	if (fg_cap_present(FG_CAP_CONFIG) && !fg_cap_present(cap))
		make_node(cap);
}

static int print_table(FILE *f)
{
	fprintf(f, "config %d\nmonitor %d\n", FG_CAP_CONFIG, FG_CAP_MONITOR);
	for (int gpu = 0; gpu < GPUS; gpu++)
		for (unsigned gi = 0; gi < GIS; gi++) {
			fprintf(f, "gpu%d/gi%u/access %d\n", gpu, gi, fg_cap(gpu, gi, -1));
			for (int ci = 0; ci < CIS; ci++)
				fprintf(f, "gpu%d/gi%u/ci%d/access %d\n", gpu, gi, ci, fg_cap(gpu, gi, ci));
		}
	return ferror(f);
}

/* Written aside and renamed: readers see all of it or nothing. 0, or -1 with errno. */
int fg_caps_write(const char *dir)
{
	char path[512], aside[544];
	snprintf(path, sizeof path, "%s/mig-minors", dir);
	if (access(path, F_OK) == 0)
		return 0;
	snprintf(aside, sizeof aside, "%s.%d", path, (int)getpid());
	FILE *f = fopen(aside, "we");
	if (!f)
		return -1;
	int bad = print_table(f);
	if (fclose(f) || bad || rename(aside, path))
		return unlink(aside), -1;
	return 0;
}
