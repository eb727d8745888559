/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mps_commands.c: what the control daemon answers to its commands, as NVIDIA's guide
 * describes them ("Legacy MPS v2 interface"). What the guide does not say is kept plain: a
 * refusal is a sentence, a success says nothing or the new value.
 */
#define _GNU_SOURCE
#include "mps.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A whole number; -1 when it is none. */
static long whole(const char *text)
{
	char *end;
	long n = text ? strtol(text, &end, 10) : -1;
	return text && end != text && !*end && n >= 0 ? n : -1;
}

static struct mps_server *server_of(struct mps_daemon *d, const char *pid, FILE *out)
{
	if (d->server.pid && whole(pid) == d->server.pid)
		return &d->server;
	fprintf(out, "Server %s not found\n", pid ? pid : "");
	return NULL;
}

static void set_percentage(struct mps_limits *l, const char *text, FILE *out)
{
	char *end;
	double v = text ? strtod(text, &end) : 0;
	if (!text || *end || end == text || v <= 0 || v > 100) {
		fprintf(out, "Invalid active thread percentage: want more than 0 and at most 100\n");
		return;
	}
	l->percentage = v;
	fprintf(out, "%.1f\n", v);
}

/* The daemon's ordinal of a device; -1 when there is none. UUIDs are taken and have no effect, as in real drivers. */
static int ordinal(const struct mps_daemon *d, const char *text, int *ineffective)
{
	*ineffective = 0;
	for (int i = 0; text && i < d->count; i++)
		if (!strcmp(d->gpu[i]->uuid, text))
			return *ineffective = 1, i;
	long n = whole(text);
	return n >= 0 && n < d->count ? (int)n : -1;
}

static void set_memory(struct mps_daemon *d, struct mps_limits *l, const char *device, const char *text, FILE *out)
{
	int ineffective, i = ordinal(d, device, &ineffective);
	char *end = NULL;
	unsigned long long n = text ? strtoull(text, &end, 10) : 0;
	if (i < 0)
		fprintf(out, "Invalid device %s\n", device ? device : "");
	else if (!text || end == text || (strcmp(end, "G") && strcmp(end, "M")))
		fprintf(out, "Invalid memory limit: want an integer and G or M\n");
	else if (!ineffective)
		l->memory[i] = n << (*end == 'G' ? 30 : 20);
}

/* Real daemons round what they show down to whole GiB from 1 GiB on. */
static void show_memory(const struct mps_daemon *d, const struct mps_limits *l, const char *device, FILE *out)
{
	int ineffective, i = ordinal(d, device ? device : "0", &ineffective);
	if (i < 0)
		fprintf(out, "Invalid device %s\n", device);
	else if (l->memory[i] >= 1ULL << 30)
		fprintf(out, "%lluG\n", (unsigned long long)(l->memory[i] >> 30));
	else
		fprintf(out, "%lluM\n", (unsigned long long)(l->memory[i] >> 20));
}

static void start_server(struct mps_daemon *d, char **word, int n, FILE *out)
{
	long uid = n >= 3 && !strcmp(word[1], "-uid") ? whole(word[2]) : -1;
	if (uid < 0)
		fprintf(out, "usage: start_server -uid <user id>\n");
	else if (d->server.pid && d->server.uid != (d->multiuser ? 0 : (uid_t)uid))
		fprintf(out, "Failed to start server: one of user %u is there\n", (unsigned)d->server.uid);
	else if (!mps_serve(d, (uid_t)uid))
		fprintf(out, "Failed to start server\n");
}

static void list_clients(const struct mps_daemon *d, int with_device, FILE *out)
{
	for (int i = 0; i < MPS_MAX_CLIENTS; i++) {
		const struct mps_client *c = &d->client[i];
		if (c->fd < 0 || c->waiting)
			continue;
		for (int k = 0; with_device && k < d->count; k++)
			fprintf(out, "%s %d\n", d->gpu[k]->uuid, (int)c->pid);
		if (!with_device)
			fprintf(out, "%d\n", (int)c->pid);
	}
}

static void ps(const struct mps_daemon *d, FILE *out)
{
	fprintf(out, "PID       ID    SERVER    DEVICE             NAMESPACE    COMMAND\n");
	for (int i = 0; i < MPS_MAX_CLIENTS; i++) {
		const struct mps_client *c = &d->client[i];
		char path[64], command[64] = "";
		if (c->fd < 0 || c->waiting)
			continue;
		snprintf(path, sizeof path, "/proc/%d/comm", (int)c->pid);
		FILE *f = fopen(path, "re");
		if (f && !fgets(command, sizeof command, f))
			*command = 0;
		if (f)
			fclose(f);
		command[strcspn(command, "\n")] = 0;
		fprintf(out, "%-9d %-5d %-9d %-18.12s %-12d %s\n", (int)c->pid, i + 1, (int)d->server.pid, d->gpu[0]->uuid, 0, command);
	}
}

static void terminate(struct mps_daemon *d, char **word, int n, FILE *out)
{
	if (n < 3 || !server_of(d, word[1], out))
		return;
	for (int i = 0; i < MPS_MAX_CLIENTS; i++) {
		struct mps_client *c = &d->client[i];
		if (c->fd >= 0 && !c->waiting && whole(word[2]) == c->pid) {
			(void)!write(c->fd, "terminated\n", 11);
			shutdown(c->fd, SHUT_RDWR);
			mps_drop(d, c);
			return;
		}
	}
	fprintf(out, "Client %s not found\n", word[2]);
}

static void quit(struct mps_daemon *d, char **word, int n)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	d->quitting = 1;
	d->quit_at_ns = 0;
	if (n >= 3 && !strcmp(word[1], "-t") && whole(word[2]) >= 0)
		d->quit_at_ns = ((uint64_t)now.tv_sec + (uint64_t)whole(word[2])) * 1000000000ULL + (uint64_t)now.tv_nsec;
}

/* Commands about one server, named by its PID. 0 when it is none of them. */
static int of_server(struct mps_daemon *d, char **w, int n, FILE *out)
{
	static const char *const known[] = {"get_server_status", "get_client_list", "shutdown_server", "set_active_thread_percentage",
					    "get_active_thread_percentage", "set_device_pinned_mem_limit", "get_device_pinned_mem_limit", NULL};
	int k = 0;
	while (known[k] && strcmp(known[k], w[0]))
		k++;
	if (!known[k])
		return 0;
	struct mps_server *s = server_of(d, n > 1 ? w[1] : NULL, out);
	if (!s)
		return 1;
	switch (k) {
	case 0: fprintf(out, "ACTIVE\n"); break;
	case 1: list_clients(d, 0, out); break;
	case 2:
		if (mps_clients(d) && !(n > 2 && !strcmp(w[2], "-f")))
			fprintf(out, "Server has clients\n");
		else
			mps_end_server(d);
		break;
	case 3: set_percentage(&s->limits, n > 2 ? w[2] : NULL, out); break;
	case 4: fprintf(out, "%.1f\n", s->limits.percentage); break;
	case 5: set_memory(d, &s->limits, n > 2 ? w[2] : NULL, n > 3 ? w[3] : NULL, out); break;
	default: show_memory(d, &s->limits, n > 2 ? w[2] : NULL, out);
	}
	return 1;
}

void mps_command(struct mps_daemon *d, char *line, FILE *out)
{
	char *w[8] = {NULL}, *word, *cursor = line;
	int n = 0;
	while (n < 8 && (word = strsep(&cursor, " \t")) != NULL)
		if (*word)
			w[n++] = word;
	if (!n || of_server(d, w, n, out))
		return;
	if (!strcmp(w[0], "get_server_list")) {
		if (d->server.pid)
			fprintf(out, "%d\n", (int)d->server.pid);
	} else if (!strcmp(w[0], "start_server")) {
		start_server(d, w, n, out);
	} else if (!strcmp(w[0], "get_device_client_list")) {
		list_clients(d, 1, out);
	} else if (!strcmp(w[0], "ps")) {
		ps(d, out);
	} else if (!strcmp(w[0], "set_default_active_thread_percentage")) {
		set_percentage(&d->defaults, w[1], out);
	} else if (!strcmp(w[0], "get_default_active_thread_percentage")) {
		fprintf(out, "%.1f\n", d->defaults.percentage);
	} else if (!strcmp(w[0], "set_default_device_pinned_mem_limit")) {
		set_memory(d, &d->defaults, w[1], w[2], out);
	} else if (!strcmp(w[0], "get_default_device_pinned_mem_limit")) {
		show_memory(d, &d->defaults, w[1], out);
	} else if (!strcmp(w[0], "terminate_client")) {
		terminate(d, w, n, out);
	} else if (!strcmp(w[0], "sm_partition")) {
		mps_partition_command(d, w, n, out);
	} else if (!strcmp(w[0], "lspart")) {
		mps_partition_list(d, out);
	} else if (!strcmp(w[0], "quit")) {
		quit(d, w, n);
	} else {
		fprintf(out, "Unknown command: %s\n", w[0]);
	}
}
