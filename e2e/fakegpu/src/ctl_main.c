/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_main.c: fakegpuctl, the hand that breaks and mends the fake machine. */
#define _GNU_SOURCE
#include "ctl.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int show(const struct fg_topology *t, char **words)
{
	(void)words;
	return ctl_show(t);
}

static const struct command {
	const char *name, *words, *does;
	int least, most;
	int (*run)(const struct fg_topology *, char **);
} commands[] = {
	{"show", "", "topology, used memory per device, instance and process; partitions as a strip", 0, 0, show},
	{"peak", "<index> [reset]", "the most bytes used at one instant since the last reset", 1, 2,
	 ctl_peak},
	{"xid", "<index> <code>", "raise an Xid on a device: NVML event sets deliver it", 2, 2, ctl_xid},
	{"watch", "<index>", "have the device in an event set until killed, as a monitoring service does", 1, 1, ctl_watch},
	{"lose", "<index>", "the device falls off the bus: NVML answers GPU_IS_LOST", 1, 1, ctl_lose},
	{"restore", "<index>", "bring it back", 1, 1, ctl_restore},
	{"recovery", "<index> <action>", "what NVML says is to be done with it: none, reset, reboot, drain-p2p, drain-and-reset", 2, 2, ctl_recovery},
	{"remap", "<index> none|pending|failed", "what NVML says of the remapping of its rows", 2, 2, ctl_remap},
	{"licence", "<index> none|ok|<time>", "what NVML says of the licence of a vGPU: <time> is its end in seconds since 1970", 2, 2, ctl_licence},
	{"mig", "<index> on|off", "ask for MIG mode as an administrator does; Ampere wants a reset then", 2, 2, ctl_mig},
	{"create", "<index> <profile> [start]", "make an instance by hand, as 1g.10gb", 2, 3, ctl_create},
	{"destroy", "<index> <gi>", "destroy one by hand", 2, 2, ctl_destroy},
	{"reset", "<index>", "reset an idle device: applies a pending MIG mode, loses its instances", 1, 1, ctl_reset},
	{"reboot", "", "kill every user of a device, lose all instances; Ampere keeps MIG mode", 0, 0, ctl_reboot},
	{"fail", "<function> <n>|always <code>", "the n-th call of an NVML function from now fails with that code", 3, 3, ctl_faulty},
	{"slow", "<function> <ms>", "each call of an NVML function takes so much longer", 2, 2, ctl_slow},
	{"mend", "", "forget all of fail and slow", 0, 0, ctl_mend},
};
#define COMMANDS (sizeof commands / sizeof *commands)

static int usage(FILE *to)
{
	fprintf(to, "usage: fakegpuctl [--dir DIR] <command>\n");
	for (size_t i = 0; i < COMMANDS; i++) {
		char form[64];
		snprintf(form, sizeof form, "%s %s", commands[i].name, commands[i].words);
		fprintf(to, "  %-34s %s\n", form, commands[i].does);
	}
	fprintf(to, "DIR defaults to $FAKEGPU_DIR, then /run/fakegpu; <index> counts the topology's gpu lines from 0.\n");
	return to == stderr ? 2 : 0;
}

int ctl_fail(const char *format, ...)
{
	va_list args;
	fprintf(stderr, "fakegpuctl: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return 1;
}

long ctl_number(const char *text, long max)
{
	char *end;
	long n = strtol(text, &end, 10);
	return end != text && !*end && n >= 0 && n <= max ? n : -1;
}

const struct fg_gpu *ctl_device(const struct fg_topology *t, const char *word)
{
	long i = ctl_number(word, t->count - 1);
	if (i < 0)
		ctl_fail("no device %s: the topology has %d", word, t->count);
	return i < 0 ? NULL : &t->gpu[i];
}

int ctl_peak(const struct fg_topology *t, char **words)
{
	const struct fg_gpu *g = ctl_device(t, words[0]);
	if (!g)
		return 1;
	if (words[1] && strcmp(words[1], "reset"))
		return ctl_fail("bad word %s: want reset", words[1]);
	fg_lock();
	uint64_t high = fg_used_high(g->minor), used = fg_used(g->minor);
	if (words[1])
		fg_reset_used_high(g->minor);
	fg_unlock();
	printf("peak index=%d uuid=%s bytes=%llu used=%llu\n", g->minor, g->uuid,
	       (unsigned long long)high, (unsigned long long)used);
	return 0;
}

int ctl_xid(const struct fg_topology *t, char **words)
{
	const struct fg_gpu *g = ctl_device(t, words[0]);
	long code = ctl_number(words[1], 1 << 20);
	if (!g)
		return 1;
	if (code < 0)
		return ctl_fail("bad Xid %s: want a whole number", words[1]);
	fg_lock();
	struct fg_device_state *d = &fg_state()->device[g->minor];
	d->xid[d->event_count % FG_EVENT_RING] = (uint64_t)code;
	__atomic_add_fetch(&d->event_count, 1, __ATOMIC_RELEASE);
	fg_unlock();
	printf("xid index=%d uuid=%s code=%ld\n", g->minor, g->uuid, code);
	return 0;
}

int ctl_watch(const struct fg_topology *t, char **words)
{
	const struct fg_gpu *g = ctl_device(t, words[0]);
	if (!g)
		return 1;
	fg_lock();
	int slot = fg_claim();
	if (slot >= 0)
		fg_state()->process[slot].watched = (uint64_t)1 << g->minor;
	fg_unlock();
	if (slot < 0)
		return ctl_fail("all places of processes are taken");
	printf("watch index=%d uuid=%s pid=%d\n", g->minor, g->uuid, (int)getpid());
	fflush(stdout);
	for (;;)
		pause();
}

static int set_lost(const struct fg_topology *t, char **words, uint32_t lost)
{
	const struct fg_gpu *g = ctl_device(t, words[0]);
	if (!g)
		return 1;
	fg_lock();
	fg_state()->device[g->minor].lost = lost;
	fg_unlock();
	printf("%s index=%d uuid=%s\n", lost ? "lose" : "restore", g->minor, g->uuid);
	return 0;
}

int ctl_lose(const struct fg_topology *t, char **words) { return set_lost(t, words, 1); }
int ctl_restore(const struct fg_topology *t, char **words) { return set_lost(t, words, 0); }

/* The number of a word in a list that ends with NULL; -1 with a message if it is not there. */
static int choice(const char *word, const char *const *words)
{
	for (int i = 0; words[i]; i++)
		if (!strcmp(words[i], word))
			return i;
	ctl_fail("no such word: %s", word);
	return -1;
}

/* Has NVML say one of some words of a device: field is where its number is kept. */
static int set_word(const struct fg_topology *t, char **words, const char *what, const char *const *all, size_t field)
{
	const struct fg_gpu *g = ctl_device(t, words[0]);
	int chosen = g ? choice(words[1], all) : -1;
	if (chosen < 0)
		return 1;
	uint16_t number = (uint16_t)chosen;
	fg_lock();
	memcpy((char *)&fg_state()->device[g->minor] + field, &number, sizeof number);
	fg_unlock();
	printf("%s index=%d uuid=%s is=%s\n", what, g->minor, g->uuid, all[chosen]);
	return 0;
}

int ctl_recovery(const struct fg_topology *t, char **words)
{
	static const char *const actions[] = {"none", "reset", "reboot", "drain-p2p", "drain-and-reset", NULL};
	return set_word(t, words, "recovery", actions, offsetof(struct fg_device_state, recovery));
}

int ctl_remap(const struct fg_topology *t, char **words)
{
	static const char *const states[] = {"none", "pending", "failed", NULL};
	return set_word(t, words, "remap", states, offsetof(struct fg_device_state, remap));
}

int ctl_licence(const struct fg_topology *t, char **words)
{
	const struct fg_gpu *g = ctl_device(t, words[0]);
	int64_t licence;
	if (!g)
		return 1;
	if (g->virt != FG_VIRTUAL_VGPU || fg_licence_parse(words[1], &licence))
		return ctl_fail("bad licence %s: want none, ok or seconds since 1970, of a device with virtual=vgpu", words[1]);
	fg_lock();
	fg_state()->device[g->minor].licence = licence;
	fg_state()->device[g->minor].licence_known = 1;
	fg_unlock();
	printf("licence index=%d uuid=%s is=%s\n", g->minor, g->uuid, words[1]);
	return 0;
}

int main(int argc, char **argv)
{
	const char *dir = fg_dir();
	struct fg_topology topology;
	char error[768];
	argc--, argv++;
	if (argc >= 2 && !strcmp(argv[0], "--dir")) {
		dir = argv[1], argc -= 2, argv += 2;
		setenv("FAKEGPU_DIR", dir, 1);
	}
	if (argc == 1 && (!strcmp(argv[0], "-h") || !strcmp(argv[0], "--help")))
		return usage(stdout);
	for (size_t i = 0; argc >= 1 && i < COMMANDS; i++) {
		const struct command *c = &commands[i];
		if (strcmp(argv[0], c->name) || argc - 1 < c->least || argc - 1 > c->most)
			continue;
		if (fg_topology_read(dir, &topology, error, sizeof error) || fg_state_open(dir, error, sizeof error))
			return ctl_fail("%s", error);
		return c->run(&topology, argv + 1);
	}
	return usage(stderr);
}
