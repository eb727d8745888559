/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "prim.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int prim_open_shared(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0 || errno != ENOENT)
		return fd;
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (fd >= 0)
		(void)fchmod(fd, 0666); /* the container's other users share it; the umask stays as it is */
	else if (errno == EEXIST)
		fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW); /* somebody was faster */
	return fd;
}

long long prim_size(int fd)
{
	return (long long)lseek(fd, 0, SEEK_END); /* nothing here reads at the file's position */
}

int prim_clear(int fd, size_t size)
{
	return ftruncate(fd, 0) || ftruncate(fd, (off_t)size) || posix_fallocate(fd, 0, (off_t)size) ? -1 : 0;
}

void *prim_map(int fd, size_t size)
{
	int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
	return at == MAP_FAILED ? NULL : at;
}

void prim_unmap(void *at, size_t size)
{
	munmap(at, size);
}

void prim_close(int fd)
{
	int saved = errno;
	close(fd);
	errno = saved;
}

static int lock(int fd, int command, short type, long long byte, struct flock *answer)
{
	struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
	int r;
	do
		r = fcntl(fd, command, &l);
	while (r && errno == EINTR && command == F_OFD_SETLKW);
	if (answer)
		*answer = l;
	return r;
}

int prim_lock_wait(int fd, long long byte)
{
	return lock(fd, F_OFD_SETLKW, F_WRLCK, byte, NULL);
}

int prim_lock_try(int fd, long long byte)
{
	return lock(fd, F_OFD_SETLK, F_WRLCK, byte, NULL);
}

void prim_unlock(int fd, long long byte)
{
	lock(fd, F_OFD_SETLK, F_UNLCK, byte, NULL);
}

int prim_locked(int fd, long long byte)
{
	struct flock l;
	return lock(fd, F_OFD_GETLK, F_WRLCK, byte, &l) == 0 && l.l_type != F_UNLCK;
}

long prim_read(const char *path, char *out, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* nobody waits for who has a lease on it */
	size_t n = 0;
	ssize_t r = 0;
	if (fd < 0)
		return -1;
	while (n < room && (r = read(fd, out + n, room - n)) != 0) {
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			break;
		n += (size_t)r;
	}
	prim_close(fd);
	if (r >= 0 && n == room) {
		errno = EFBIG;
		return -1;
	}
	return r < 0 ? -1 : (long)n;
}

int prim_pid(void)
{
	return (int)getpid();
}

long long prim_coarse_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int prim_identity(int fd, unsigned long long out[2])
{
	struct stat st;
	/* by number: the C library has had the call under several names */
	if (syscall(SYS_fstat, fd, &st))
		return -1;
	out[0] = st.st_dev;
	out[1] = st.st_ino;
	return 0;
}
