/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "mps_mode.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int fg_compute_mode(const char *dir, int minor)
{
	char path[512];
	int mode = FG_MODE_DEFAULT;
	snprintf(path, sizeof path, "%s/compute-mode-%d", dir, minor);
	FILE *f = fopen(path, "re");
	if (!f)
		return FG_MODE_DEFAULT;
	if (fscanf(f, "%d", &mode) != 1)
		mode = FG_MODE_DEFAULT;
	fclose(f);
	return mode;
}

int fg_set_compute_mode(const char *dir, int minor, int mode)
{
	char path[512], next[520];
	snprintf(path, sizeof path, "%s/compute-mode-%d", dir, minor);
	snprintf(next, sizeof next, "%s.next", path);
	FILE *f = fopen(next, "we");
	if (!f)
		return -1;
	fprintf(f, "%d\n", mode);
	return fclose(f) || rename(next, path) ? -1 : 0;
}

int fg_contexts_open(const char *dir, int minor)
{
	char path[512];
	int mode = fg_compute_mode(dir, minor);
	if (mode == FG_MODE_PROHIBITED)
		return -1;
	snprintf(path, sizeof path, "%s/contexts-%d", dir, minor);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return -1;
	(void)fchmod(fd, 0666); /* containers may run as other users */
	if (flock(fd, (mode == FG_MODE_EXCLUSIVE_PROCESS ? LOCK_EX : LOCK_SH) | LOCK_NB)) {
		close(fd);
		return -1;
	}
	return fd;
}
