/* SPDX-License-Identifier: Apache-2.0 */
/* prim_directory.c: the floor to a directory of small files that others write. */
#define _GNU_SOURCE
#include "platform/prim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Whoever is told to give a lease back may take it again: its holder has to be met in between */
#define LEASE_TRIES 50

int prim_write_at(const char *path, long long offset, const void *from, size_t size)
{
	if (!prim_may_grow((unsigned long long)offset + size))
		return errno = EFBIG, -1;
	int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return -1;
	ssize_t n = pwrite(fd, from, size, (off_t)offset);
	prim_close(fd);
	return n == (ssize_t)size ? 0 : -1;
}

int prim_keep_writable(const char *path)
{
	int fd = -1;
	for (int i = 0; i < LEASE_TRIES && fd < 0; i++) {
		fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd < 0 && errno != EWOULDBLOCK)
			return -1;
	}
	if (fd < 0)
		return -1;
	/*
	 * a mapping that nothing can touch: it does not matter how long the file is, and no
	 * descriptor is left for a program to close
	 */
	void *at = mmap(NULL, 1, PROT_NONE, MAP_SHARED, fd, 0);
	prim_close(fd);
	return at == MAP_FAILED ? -1 : 0;
}

int prim_list(const char *path, void (*tell)(const char *name, void *to), void *to)
{
	DIR *d = opendir(path);
	if (!d)
		return -1;
	for (struct dirent *e; (e = readdir(d)) != NULL;)
		tell(e->d_name, to);
	closedir(d);
	return 0;
}

unsigned long long prim_directory_changed_ns(const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	/* by number: the C library has had the call under several names */
	long r = syscall(SYS_fstat, fd, &st);
	prim_close(fd);
	return r ? 0
		 : (unsigned long long)st.st_mtim.tv_sec * 1000000000ULL +
			       (unsigned long long)st.st_mtim.tv_nsec;
}
