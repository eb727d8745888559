/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_mps.c: the client side of MPS. The limits of the environment hold where they are
 * lower than the server's, per process, as in the real driver.
 */
#define _GNU_SOURCE
#include "cuda_mps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mps.h"
#include "mps_mode.h"

static struct {
	int fd; /* -1: no client */
	int lost; /* the result of every call from now on */
	double percentage;
	int sms; /* of a static partition, 0: none */
	uint64_t limit[FG_MAX_DEVICES]; /* the server's by minor, 0: none */
} mps = {.fd = -1};

static int contexts[FG_MAX_DEVICES]; /* descriptors + 1, 0: none yet */

static int dial(void)
{
	const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int n = snprintf(a.sun_path, sizeof a.sun_path, "%s/control", pipe && *pipe ? pipe : MPS_PIPE_DEFAULT);
	if (n >= (int)sizeof a.sun_path)
		return -1;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* One line of the daemon's, byte by byte, since more may follow later. */
static int read_line(int fd, char *line, size_t size)
{
	size_t n = 0;
	while (n + 1 < size) {
		ssize_t got = recv(fd, line + n, 1, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return -1;
		if (line[n] == '\n')
			break;
		n++;
	}
	line[n] = 0;
	return 0;
}

/* CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: "0=1024M,1=2G"; by ordinal. What is malformed ends the list. */
static uint64_t asked_limit(int ordinal)
{
	const char *text = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
	while (text && *text) {
		char *end;
		long device = strtol(text, &end, 10);
		if (*end != '=')
			return 0;
		unsigned long long n = strtoull(end + 1, &end, 10);
		int shift = *end == 'G' ? 30 : *end == 'M' ? 20 : -1;
		if (shift < 0)
			return 0;
		if (device == ordinal)
			return n << shift;
		text = end[1] == ',' ? end + 2 : NULL;
	}
	return 0;
}

static uint64_t lower(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

/* Leaves the daemon's devices, in the order they have. */
static void keep_devices(const char *list, struct fg_gpu **all, int *count)
{
	int kept = 0;
	for (int i = 0; i < *count; i++)
		for (const char *p = list; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
			int minor;
			unsigned long long limit;
			if (sscanf(p, "%d:%llu", &minor, &limit) != 2 || minor != all[i]->minor)
				continue;
			mps.limit[minor] = limit;
			all[kept++] = all[i];
			break;
		}
	*count = kept;
}

static CUresult understand(const char *line, struct fg_gpu **all, int *count)
{
	int code, server, sms;
	double percentage;
	char devices[MPS_LINE] = "";
	if (sscanf(line, "error %d", &code) == 1)
		return code;
	if (sscanf(line, "ok server=%d percentage=%lf sms=%d devices=%1023s", &server, &percentage, &sms, devices) != 4)
		return MPS_ERROR_RPC_FAILURE;
	const char *asked = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
	double mine = asked ? strtod(asked, NULL) : 0;
	mps.percentage = mine > 0 && mine < percentage ? mine : percentage;
	mps.sms = sms;
	keep_devices(devices, all, count);
	return *count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult fg_mps_attach(struct fg_gpu **all, int *count)
{
	char line[MPS_LINE];
	const char *partition = getenv("CUDA_MPS_SM_PARTITION");
	int fd = dial();
	if (fd < 0)
		return CUDA_SUCCESS; /* no daemon: the program runs without MPS */
	int n = snprintf(line, sizeof line, "client partition=%s\n", partition && *partition ? partition : "none");
	CUresult r = write(fd, line, (size_t)n) == n && !read_line(fd, line, sizeof line) ? understand(line, all, count) : MPS_ERROR_CONNECTION_FAILED;
	if (r != CUDA_SUCCESS) {
		close(fd);
		return r;
	}
	mps.fd = fd;
	return CUDA_SUCCESS;
}

CUresult fg_mps_alive(void)
{
	char text[16] = "";
	if (mps.fd < 0 || mps.lost)
		return mps.lost;
	ssize_t n = recv(mps.fd, text, sizeof text - 1, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return CUDA_SUCCESS;
	return mps.lost = !strncmp(text, "terminated", 10) ? MPS_ERROR_CLIENT_TERMINATED : MPS_ERROR_RPC_FAILURE;
}

CUresult fg_mps_contexts(int ordinal)
{
	if (mps.fd >= 0)
		return fg_mps_alive();
	int minor = fake.gpu[ordinal]->minor;
	if (!contexts[minor])
		contexts[minor] = fg_contexts_open(fg_dir(), minor) + 1;
	return contexts[minor] ? CUDA_SUCCESS : MPS_ERROR_DEVICE_UNAVAILABLE;
}

static uint64_t limit_of(int ordinal)
{
	return mps.fd < 0 ? 0 : lower(mps.limit[fake.gpu[ordinal]->minor], asked_limit(ordinal));
}

int fg_mps_admits(int ordinal, uint64_t used, uint64_t bytes)
{
	uint64_t limit = limit_of(ordinal);
	return !limit || (bytes <= limit && used <= limit - bytes);
}

uint64_t fg_mps_free(int ordinal, uint64_t own, uint64_t free_bytes)
{
	uint64_t limit = limit_of(ordinal);
	if (!limit)
		return free_bytes;
	uint64_t left = own < limit ? limit - own : 0;
	return left < free_bytes ? left : free_bytes;
}

int fg_mps_sms(int ordinal, int sms)
{
	(void)ordinal;
	if (mps.fd < 0)
		return sms;
	if (mps.sms)
		return mps.sms;
	int part = (int)(sms * mps.percentage / 100);
	return part > 0 ? part : 1;
}

void fg_mps_after_fork(void)
{
	if (mps.fd >= 0)
		close(mps.fd);
	mps.fd = -1;
	for (int i = 0; i < FG_MAX_DEVICES; i++)
		if (contexts[i]) {
			close(contexts[i] - 1);
			contexts[i] = 0;
		}
}
