/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prim_process.c: which process this is, and whether another one lives, without trusting numbers
 * that the kernel gives again.
 */
#define _GNU_SOURCE
#include "platform/prim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* What /proc says of a process. -1: nothing. */
static int read_stat(int pid, char *state, long *threads, unsigned long long *start)
{
	char path[64], text[1024];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	long n = prim_read(path, text, sizeof text - 1);
	text[n < 0 ? 0 : n] = 0;
	const char *after = strrchr(text, ')'); /* a program's name may hold anything */
	return after && sscanf(after,
			       ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
			       "%*d %ld %*d %llu",
			       state, threads, start) == 3
		       ? 0
		       : -1;
}

/* A number in the name that a link leads to; 0: there is none. */
static unsigned read_link_number(const char *path, const char *format)
{
	char text[64];
	unsigned number;
	ssize_t n = readlink(path, text, sizeof text - 1);
	text[n < 0 ? 0 : n] = 0;
	return sscanf(text, format, &number) == 1 ? number : 0;
}

/*
 * Numbers of processes mean the same in one namespace only. 0 also where /proc is of another one:
 * under our PID it shows another process.
 */
static uint32_t pid_namespace(void)
{
	if (read_link_number("/proc/self", "%u") != (unsigned)prim_pid())
		return 0;
	return read_link_number("/proc/self/ns/pid", "pid:[%u]");
}

uint64_t prim_process_identity(void)
{
	char state;
	long threads;
	unsigned long long start;
	uint32_t space = pid_namespace();
	if (!space || read_stat(prim_pid(), &state, &threads, &start))
		return 0;
	return (uint64_t)(uint32_t)start << 32 | space;
}

int prim_process_is_dead(int pid, uint64_t identity)
{
	char state;
	long threads;
	unsigned long long start;
	int saved = errno;
	if (pid <= 0 || !identity || prim_pid_space(identity) != pid_namespace())
		return 0;
	int gone = kill(pid, 0) && errno == ESRCH;
	if (!gone && read_stat(pid, &state, &threads, &start) == 0)
		/* nobody has waited for it yet; with more threads, only its first has ended */
		gone = (uint32_t)start != identity >> 32 ||
		       ((state == 'Z' || state == 'X') && threads <= 1);
	errno = saved;
	return gone;
}

static int owner_lock(int fd, int command, long long byte, struct flock *l)
{
	*l = (struct flock){
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
	return fcntl(fd, command, l);
}

void prim_own(int fd, long long byte)
{
	struct flock l;
	int saved = errno;
	(void)owner_lock(fd, F_SETLK, byte, &l);
	errno = saved;
}

int prim_is_owned(int fd, long long byte)
{
	struct flock l;
	return owner_lock(fd, F_GETLK, byte, &l) == 0 && l.l_type != F_UNLCK;
}

int prim_hold_for_life(int fd)
{
	/* a mapping keeps the file; as nothing can touch it, the file's length does not matter */
	void *at = mmap(NULL, 1, PROT_NONE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return -1;
	if (madvise(at, 1, MADV_DONTFORK))
		return munmap(at, 1), -1;
	prim_close(fd);
	return 0;
}

void *prim_wiped_on_fork(size_t size)
{
	int saved = errno;
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at != MAP_FAILED && madvise(at, size, MADV_WIPEONFORK) == 0)
		return errno = saved, at;
	if (at != MAP_FAILED)
		munmap(at, size);
	return errno = saved, NULL;
}
