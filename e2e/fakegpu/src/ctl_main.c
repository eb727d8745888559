/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_main.c: fakegpuctl, the hand that breaks and mends the fake machine. */
#define _GNU_SOURCE
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int usage(FILE *to)
{
	fprintf(to, "usage: fakegpuctl [--dir DIR] show | xid <index> <code> | lose <index> | restore <index>\n"
		    "  show     topology, used memory per device and per process\n"
		    "  xid      raise an Xid on a device: NVML event sets deliver it\n"
		    "  lose     the device falls off the bus: NVML answers GPU_IS_LOST\n"
		    "  restore  bring it back\n"
		    "DIR defaults to $FAKEGPU_DIR, then /run/fakegpu; <index> counts the topology's gpu lines from 0.\n");
	return to == stderr ? 2 : 0;
}

static void show_processes(int minor)
{
	for (int i = 0; i < FG_MAX_PROCESSES; i++) {
		const struct fg_process *p = &fg_state()->process[i];
		if (!p->in_use || (!p->used[minor] && !p->busy_ns[minor]))
			continue;
		int pid = fg_owner(i);
		printf("  process pid=%d own_pid=%u name=%s used_mib=%llu busy_ms=%llu\n", pid, p->pid, p->name,
		       (unsigned long long)(p->used[minor] >> 20), (unsigned long long)(p->busy_ns[minor] / 1000000));
	}
}

static int show(const struct fg_topology *t)
{
	printf("driver=%s cuda=%d.%d devices=%d\n", t->driver, t->cuda_major, t->cuda_minor, t->count);
	fg_lock();
	for (int i = 0; i < t->count; i++) {
		const struct fg_gpu *g = &t->gpu[i];
		const struct fg_device_state *d = &fg_state()->device[i];
		printf("device index=%d uuid=%s model=\"%s\" pci=%04x:%02x:%02x.0 total_mib=%llu used_mib=%llu lost=%u xids=%llu busy_ms=%llu\n",
		       i, g->uuid, g->model, g->domain, g->bus, g->slot, (unsigned long long)(g->memory >> 20),
		       (unsigned long long)(fg_used(i) >> 20), d->lost, (unsigned long long)d->event_count,
		       (unsigned long long)(d->busy_total_ns / 1000000));
		show_processes(i);
	}
	fg_unlock();
	return 0;
}

/* A whole number of text; -1 when it is not one from 0 to max. */
static long number(const char *text, long max)
{
	char *end;
	long n = strtol(text, &end, 10);
	return end != text && !*end && n >= 0 && n <= max ? n : -1;
}

static int change(const struct fg_topology *t, int argc, char **argv)
{
	int is_xid = !strcmp(argv[0], "xid");
	if (argc != (is_xid ? 3 : 2))
		return usage(stderr);
	long index = number(argv[1], t->count - 1), code = is_xid ? number(argv[2], 1 << 20) : 0;
	if (index < 0)
		return fprintf(stderr, "fakegpuctl: no device %s: the topology has %d\n", argv[1], t->count), 1;
	if (code < 0)
		return fprintf(stderr, "fakegpuctl: bad Xid %s: want a whole number\n", argv[2]), 1;
	fg_lock();
	struct fg_device_state *d = &fg_state()->device[index];
	if (is_xid) {
		d->xid[d->event_count % FG_EVENT_RING] = (uint64_t)code;
		__atomic_add_fetch(&d->event_count, 1, __ATOMIC_RELEASE);
	} else {
		d->lost = !strcmp(argv[0], "lose");
	}
	fg_unlock();
	printf("%s index=%ld uuid=%s%s%s\n", argv[0], index, t->gpu[index].uuid, is_xid ? " code=" : "", is_xid ? argv[2] : "");
	return 0;
}

int main(int argc, char **argv)
{
	const char *dir = fg_dir();
	struct fg_topology topology;
	char error[768];
	argc--, argv++;
	if (argc >= 2 && !strcmp(argv[0], "--dir"))
		dir = argv[1], argc -= 2, argv += 2;
	if (argc == 1 && (!strcmp(argv[0], "-h") || !strcmp(argv[0], "--help")))
		return usage(stdout);
	if (argc < 1)
		return usage(stderr);
	if (strcmp(argv[0], "show") && strcmp(argv[0], "xid") && strcmp(argv[0], "lose") && strcmp(argv[0], "restore"))
		return usage(stderr);
	if (fg_topology_read(dir, &topology, error, sizeof error) || fg_state_open(dir, error, sizeof error))
		return fprintf(stderr, "fakegpuctl: %s\n", error), 1;
	return strcmp(argv[0], "show") ? change(&topology, argc, argv) : show(&topology);
}
