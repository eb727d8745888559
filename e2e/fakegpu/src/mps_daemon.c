/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mps_daemon.c: the control daemon: one server of one user at a time, its clients, and
 * those of another user who wait. A server is a process of its own that holds the right to
 * contexts on the devices; when it ends its clients are cut off, and it ends with the daemon.
 */
#define _GNU_SOURCE
#include "mps.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mps_mode.h"

enum { TICK_MS = 200 };

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

int mps_clients(const struct mps_daemon *d)
{
	int n = 0;
	for (int i = 0; i < MPS_MAX_CLIENTS; i++)
		n += d->client[i].fd >= 0 && !d->client[i].waiting;
	return n;
}

void mps_drop(struct mps_daemon *d, struct mps_client *c)
{
	mps_log(d, "User did not send valid credentials or client disconnected: %d", (int)c->pid);
	close(c->fd);
	*c = (struct mps_client){.fd = -1, .partition = -1};
}

/* The life of a server: it holds what it holds until it is told to end. */
static void be_server(struct mps_daemon *d, uid_t uid, int report)
{
	char why = 0;
	prctl(PR_SET_NAME, "nvidia-cuda-mps-server");
	for (int i = 0; i < d->count; i++)
		why |= fg_contexts_open(fg_dir(), d->gpu[i]->minor) < 0;
	if (geteuid() == 0 && (setgid(uid) || setuid(uid)))
		why = 1;
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* after setuid, which clears it */
	signal(SIGTERM, SIG_DFL);
	if (write(report, &why, 1) != 1 || why)
		_exit(1);
	close(report);
	for (;;)
		pause();
}

struct mps_server *mps_serve(struct mps_daemon *d, uid_t uid)
{
	struct mps_server *s = &d->server;
	uid_t as = d->multiuser ? 0 : uid;
	int report[2];
	char why = 1;
	if (s->pid)
		return s->uid == as ? s : NULL;
	if (pipe(report))
		return NULL;
	pid_t pid = fork();
	if (pid == 0) {
		close(report[0]);
		close(d->listener);
		for (int i = 0; i < MPS_MAX_CLIENTS; i++)
			if (d->client[i].fd >= 0)
				close(d->client[i].fd);
		be_server(d, as, report[1]);
	}
	close(report[1]);
	if (pid < 0 || read(report[0], &why, 1) != 1)
		why = 1;
	close(report[0]);
	if (why) {
		mps_log(d, "Failed to start server: its devices are in use by others");
		if (pid > 0)
			waitpid(pid, NULL, 0);
		return NULL;
	}
	*s = (struct mps_server){.pid = pid, .uid = as, .limits = d->defaults};
	mps_log(d, "Starting new server %d for user %u", (int)pid, (unsigned)as);
	return s;
}

void mps_end_server(struct mps_daemon *d)
{
	if (!d->server.pid)
		return;
	kill(d->server.pid, SIGKILL);
	waitpid(d->server.pid, NULL, 0);
	mps_log(d, "Server %d exited", (int)d->server.pid);
	d->server = (struct mps_server){0};
	for (int i = 0; i < MPS_MAX_CLIENTS; i++)
		if (d->client[i].fd >= 0 && !d->client[i].waiting)
			mps_drop(d, &d->client[i]);
}

static void answer(struct mps_client *c, const char *text)
{
	(void)!write(c->fd, text, strlen(text));
}

static void refuse(struct mps_daemon *d, struct mps_client *c, int code)
{
	char text[64];
	snprintf(text, sizeof text, "error %d\n", code);
	answer(c, text);
	mps_drop(d, c);
}

static void welcome(struct mps_daemon *d, struct mps_client *c)
{
	char text[MPS_LINE];
	int sms = 0;
	if (c->partition >= 0)
		sms = d->partition[c->partition].chunks * mps_chunk(d->gpu[d->partition[c->partition].device]);
	int n = snprintf(text, sizeof text, "ok server=%d percentage=%.1f sms=%d devices=", (int)d->server.pid,
			 d->server.limits.percentage, sms);
	for (int i = 0; i < d->count; i++)
		if (c->partition < 0 || d->partition[c->partition].device == i)
			n += snprintf(text + n, sizeof text - (size_t)n, "%d:%llu,", d->gpu[i]->minor,
				      (unsigned long long)d->server.limits.memory[i]);
	snprintf(text + n, sizeof text - (size_t)n, "\n");
	mps_log(d, "NEW CLIENT %d from user %u: Server already exists", (int)c->pid, (unsigned)c->uid);
	answer(c, text);
}

/* Lets a client in, refuses it, or makes it wait for another user's clients. */
static void admit(struct mps_daemon *d, struct mps_client *c)
{
	c->waiting = 1;
	if (d->quitting)
		return refuse(d, c, MPS_ERROR_SERVER_NOT_READY);
	if (d->partitioned && c->partition < 0)
		return refuse(d, c, MPS_ERROR_INVALID_RESOURCE_CONFIGURATION);
	uid_t as = d->multiuser ? 0 : c->uid;
	if (d->server.pid && d->server.uid != as) {
		if (mps_clients(d) > 0)
			return mps_log(d, "NEW CLIENT %d from user %u: waits for the clients of user %u", (int)c->pid,
				       (unsigned)c->uid, (unsigned)d->server.uid);
		mps_end_server(d);
	}
	if (mps_clients(d) >= d->allowed)
		return refuse(d, c, MPS_ERROR_MAX_CLIENTS_REACHED);
	if (!mps_serve(d, c->uid))
		return refuse(d, c, MPS_ERROR_SERVER_NOT_READY);
	c->waiting = 0;
	welcome(d, c);
}

static void greet(struct mps_daemon *d, int fd, const struct ucred *who, const char *line)
{
	char id[80] = "none";
	struct mps_client *c = NULL;
	for (int i = 0; i < MPS_MAX_CLIENTS && !c; i++)
		if (d->client[i].fd < 0)
			c = &d->client[i];
	if (!c) {
		close(fd);
		return;
	}
	sscanf(line, "client partition=%79s", id);
	*c = (struct mps_client){.fd = fd, .pid = who->pid, .uid = who->uid, .partition = mps_partition_find(d, id)};
	admit(d, c);
}

static void accept_one(struct mps_daemon *d)
{
	char line[MPS_LINE];
	struct ucred who;
	socklen_t size = sizeof who;
	struct timeval patience = {.tv_sec = 2};
	int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	ssize_t n = recv(fd, line, sizeof line - 1, 0);
	if (n <= 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size)) {
		close(fd);
		return;
	}
	line[n] = 0;
	line[strcspn(line, "\r\n")] = 0;
	if (!strncmp(line, "client ", 7))
		return greet(d, fd, &who, line);
	mps_log(d, "NEW UI, Cmd:%s", line);
	FILE *out = fdopen(fd, "w");
	if (who.uid != 0 && who.uid != geteuid())
		fprintf(out, "Permission denied\n");
	else
		mps_command(d, line, out);
	fclose(out);
}

/* Whether a client's end of the connection is closed. */
static int hung_up(const struct mps_client *c)
{
	char byte;
	ssize_t n = recv(c->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static void tend(struct mps_daemon *d)
{
	if (d->server.pid && waitpid(d->server.pid, NULL, WNOHANG) == d->server.pid) {
		mps_log(d, "Server %d exited unexpectedly", (int)d->server.pid);
		d->server.pid = 0;
		for (int i = 0; i < MPS_MAX_CLIENTS; i++)
			if (d->client[i].fd >= 0 && !d->client[i].waiting)
				mps_drop(d, &d->client[i]);
	}
	for (int i = 0; i < MPS_MAX_CLIENTS; i++)
		if (d->client[i].fd >= 0 && hung_up(&d->client[i]))
			mps_drop(d, &d->client[i]);
	for (int i = 0; i < MPS_MAX_CLIENTS; i++)
		if (d->client[i].fd >= 0 && d->client[i].waiting)
			admit(d, &d->client[i]);
}

static int over(struct mps_daemon *d)
{
	return d->quitting && (!mps_clients(d) || (d->quit_at_ns && now_ns() >= d->quit_at_ns));
}

int mps_run(struct mps_daemon *d)
{
	char path[512];
	for (int i = 0; i < MPS_MAX_CLIENTS; i++)
		d->client[i] = (struct mps_client){.fd = -1, .partition = -1};
	mps_log(d, "Startup: %d device(s), %d clients allowed", d->count, d->allowed);
	while (!over(d)) {
		struct pollfd p[MPS_MAX_CLIENTS + 1] = {{.fd = d->listener, .events = POLLIN}};
		int n = 1, waiting = 0;
		for (int i = 0; i < MPS_MAX_CLIENTS; i++)
			if (d->client[i].fd >= 0) {
				p[n++] = (struct pollfd){.fd = d->client[i].fd, .events = POLLIN};
				waiting |= d->client[i].waiting;
			}
		if (poll(p, (nfds_t)n, d->server.pid || waiting || d->quitting ? TICK_MS : -1) < 0 && errno != EINTR)
			break;
		tend(d);
		if (p[0].revents & POLLIN)
			accept_one(d);
	}
	mps_end_server(d);
	mps_log(d, "Exit with status 0");
	for (const char *const *name = (const char *const[]){"control", "nvidia-cuda-mps-control.pid", NULL}; *name; name++) {
		snprintf(path, sizeof path, "%s/%s", d->pipe, *name);
		(void)unlink(path);
	}
	return 0;
}
