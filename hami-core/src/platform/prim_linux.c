/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "platform/prim.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SIGNALS 100 /* that may interrupt one call: a profiler sends a thousand in a second */
#define NAME_ROOM 512     /* of the region's path and 34 more; threads' stacks may be small */
#define DRAFTS 64         /* more processes of one PID do not come at one instant */
#define SHARED (O_RDWR | O_CLOEXEC | O_NOFOLLOW)

/* Makes a file that all of the container's users may open; the umask stays as it is. */
static int make_for_all(const char *path)
{
	int fd = open(path, SHARED | O_CREAT | O_EXCL, 0666);
	if (fd >= 0)
		(void)fchmod(fd, 0666);
	return fd;
}

/*
 * Makes a file under a name that no other has. A process of another container may have the same
 * PID, and come at the same instant.
 */
static int make_draft(const char *path, char draft[NAME_ROOM])
{
	int fd = -1;
	for (unsigned i = 0; i < DRAFTS && fd < 0; i++) {
		int n = snprintf(draft, NAME_ROOM, "%s.%d.%llx.%u", path, prim_pid(), prim_now(),
				 i);
		if (n >= NAME_ROOM)
			return errno = ENAMETOOLONG, -1;
		fd = make_for_all(draft);
		if (fd < 0 && errno != EEXIST)
			return -1;
	}
	return fd;
}

/*
 * Makes a shared file under a name of its own first: before its mode is set, another user who found
 * it would be refused. Where a file system has no links it gets its name at once.
 */
static int make_shared(const char *path)
{
	char draft[NAME_ROOM];
	int fd = make_draft(path, draft);
	if (fd < 0)
		return -1;
	int linked = link(draft, path) == 0, there = !linked && errno == EEXIST;
	unlink(draft);
	if (linked)
		return fd;
	prim_close(fd);
	if (!there) {
		fd = make_for_all(path);
		if (fd >= 0 || errno != EEXIST)
			return fd;
	}
	return open(path, SHARED); /* somebody was faster */
}

int prim_open_shared(const char *path)
{
	int fd = open(path, SHARED);
	return fd >= 0 || errno != ENOENT ? fd : make_shared(path);
}

long long prim_size(int fd)
{
	return (long long)lseek(fd, 0, SEEK_END); /* nothing here reads at the file's position */
}

int prim_grow(int fd, size_t size)
{
	/* a file that is long enough is no matter of RLIMIT_FSIZE */
	if (prim_size(fd) < (long long)size && !prim_may_grow(size))
		return errno = EFBIG, -1;
	for (int tries = SIGNALS; tries; tries--) {
		if (fallocate(fd, 0, 0, (off_t)size) == 0)
			return 0;
		if (errno != EINTR)
			break;
	}
	if (errno != EOPNOTSUPP && errno != ENOSYS)
		return -1;
	long long now = prim_size(fd); /* this file system cannot promise room */
	return now < 0 || (now < (long long)size && ftruncate(fd, (off_t)size)) ? -1 : 0;
}

int prim_zero(int fd, size_t size)
{
	static const char zeros[65536];
	if (!prim_may_grow(size))
		return errno = EFBIG, -1;
	for (size_t at = 0; at < size;) {
		size_t left = size - at, piece = left < sizeof zeros ? left : sizeof zeros;
		ssize_t n = pwrite(fd, zeros, piece, (off_t)at);
		if (n <= 0 && errno != EINTR)
			return -1;
		at += n > 0 ? (size_t)n : 0;
	}
	return 0;
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

static int lock_bytes(int fd, int command, short type, long long byte, long long count,
		      struct flock *answer)
{
	*answer = (struct flock){
		.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = count};
	return fcntl(fd, command, answer);
}

int prim_lock_try(int fd, long long byte)
{
	struct flock l;
	return lock_bytes(fd, F_OFD_SETLK, F_WRLCK, byte, 1, &l);
}

void prim_unlock(int fd, long long byte)
{
	struct flock l;
	lock_bytes(fd, F_OFD_SETLK, F_UNLCK, byte, 1, &l);
}

int prim_is_locked(int fd, long long byte, long long count)
{
	struct flock l;
	return lock_bytes(fd, F_OFD_GETLK, F_WRLCK, byte, count, &l) ? -1 : l.l_type != F_UNLCK;
}

void prim_wait(uint32_t *word, uint32_t seen, unsigned ms)
{
	struct timespec most = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
	int saved = errno;
	syscall(SYS_futex, word, FUTEX_WAIT, seen, &most, NULL, 0);
	errno = saved;
}

void prim_wake(uint32_t *word)
{
	int saved = errno;
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
	errno = saved;
}

int prim_is_link(const char *path)
{
	char first;
	return readlink(path, &first, 1) >= 0;
}

int prim_is_transient(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
	       error == EINTR || error == EAGAIN || error == EIO || error == ESTALE ||
	       error == ETIMEDOUT;
}

int prim_can_open(void)
{
	int fd = open("/", O_PATH | O_CLOEXEC);
	if (fd >= 0)
		prim_close(fd);
	return fd >= 0 || (errno != EMFILE && errno != ENFILE && errno != ENOMEM) ? 0 : -1;
}

int prim_may_grow(unsigned long long size)
{
	struct rlimit r;
	return getrlimit(RLIMIT_FSIZE, &r) || r.rlim_cur == RLIM_INFINITY || size <= r.rlim_cur;
}

int prim_can_write(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	struct stat st;
	if (poll(&p, 1, 0) != 1 || p.revents != POLLOUT) /* full, or nobody reads it */
		return 0;
	if (syscall(SYS_fstat, fd, &st) || !S_ISREG(st.st_mode))
		return 1;
	off_t at = lseek(fd, 0, SEEK_CUR);
	return prim_may_grow((unsigned long long)(at > st.st_size ? at : st.st_size) + 1024);
}

long prim_read(const char *path, char *out, size_t room)
{
	/* Nobody waits for who has a lease on it */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
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

size_t prim_peek(void *to, uint64_t from, size_t size)
{
	struct iovec here = {to, size}, there = {(void *)(uintptr_t)from, size};
	int saved = errno;
	long n = syscall(SYS_process_vm_readv, getpid(), &here, 1, &there, 1, 0);
	errno = saved;
	return n > 0 ? (size_t)n : 0;
}

void *prim_map_file(const char *path, size_t *size)
{
	int saved = errno, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	long long bytes = fd >= 0 ? prim_size(fd) : 0;
	void *at = bytes > 0 ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0)
			     : MAP_FAILED;
	if (fd >= 0)
		close(fd);
	*size = (size_t)bytes;
	errno = saved;
	return at == MAP_FAILED ? NULL : at;
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

unsigned long long prim_birth_ns(int fd)
{
	struct statx st;
	/* by number: newer than the oldest C library */
	if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BTIME, &st))
		return 0;
	if (!(st.stx_mask & STATX_BTIME))
		return 0;
	return (unsigned long long)st.stx_btime.tv_sec * 1000000000 + st.stx_btime.tv_nsec;
}
