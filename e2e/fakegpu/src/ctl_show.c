/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_show.c: fakegpuctl show, the machine as text. */
#include "ctl.h"

#include <stdio.h>
#include <string.h>

#define CELL 9 /* characters of one memory slice in the strip, with its right border */

static int process_line(int slot, int minor, const char *indent)
{
	const struct fg_process *p = &fg_state()->process[slot];
	return printf("%sprocess pid=%d own_pid=%u name=%s used_mib=%llu busy_ms=%llu\n", indent, fg_owner(slot), p->pid, p->name,
		      (unsigned long long)(p->used[minor] >> 20), (unsigned long long)(p->busy_ns[minor] / 1000000));
}

static void show_processes(int minor)
{
	for (int i = 0; i < FG_MAX_PROCESSES; i++) {
		const struct fg_process *p = &fg_state()->process[i];
		if (p->in_use && !p->gi_serial && (p->used[minor] || p->busy_ns[minor]))
			process_line(i, minor, "  ");
	}
}

static const struct fg_gi *at_slice(int minor, unsigned slice)
{
	for (int i = 0; i < FG_MAX_INSTANCES; i++) {
		const struct fg_gi *gi = &fg_state()->device[minor].mig.gi[i];
		if (gi->in_use && slice >= gi->start && slice < gi->start + gi->slices)
			return gi;
	}
	return NULL;
}

/* One cell per memory slice; an instance spans the cells of its slices and bears its name. */
static void show_strip(const struct fg_gpu *g)
{
	printf("  slices |");
	for (unsigned s = 0; s < fg_mig_slices(g);) {
		const struct fg_gi *gi = at_slice(g->minor, s);
		unsigned span = gi ? gi->slices : 1;
		struct fg_profile p = {.name = "."};
		if (gi)
			(void)fg_profile_by_number(g, gi->profile, &p);
		printf("%-*.*s|", (int)span * CELL - 1, (int)span * CELL - 1, p.name);
		s += span;
	}
	printf("\n");
}

static void show_instance(const struct fg_gpu *g, const struct fg_gi *gi, const struct fg_ci *ci)
{
	struct fg_gpu mig;
	struct fg_profile p = {.name = "?"};
	(void)fg_profile_by_number(g, gi->profile, &p);
	fg_mig_as_gpu(g, gi, ci, &mig);
	printf("  instance gi=%u ci=%u profile=%s start=%u size=%u uuid=%s total_mib=%llu used_mib=%llu\n", gi->id, ci->id, p.name,
	       gi->start, gi->slices, ci->uuid, (unsigned long long)(mig.memory >> 20), (unsigned long long)(fg_used_of(&mig) >> 20));
	for (int i = 0; i < FG_MAX_PROCESSES; i++)
		if (fg_state()->process[i].in_use && fg_state()->process[i].ci_serial == ci->serial)
			process_line(i, g->minor, "    ");
}

static void show_partitions(const struct fg_gpu *g)
{
	show_strip(g);
	for (unsigned id = 0; id < 15; id++) {
		struct fg_gi *gi = fg_gi_by_id(g->minor, id);
		int usable = 0;
		for (int c = 0; gi && c < FG_MAX_INSTANCES; c++)
			if (gi->ci[c].in_use) {
				show_instance(g, gi, &gi->ci[c]);
				usable++;
			}
		if (gi && !usable)
			printf("  instance gi=%u ci=none start=%u size=%u\n", id, gi->start, gi->slices);
	}
}

static const char *mode_of(const struct fg_gpu *g, unsigned *current)
{
	unsigned pending;
	fg_mig_mode(g, current, &pending);
	if (!fg_mig_slices(g))
		return "none";
	if (*current == pending)
		return *current ? "on" : "off";
	return pending ? "off-until-reset" : "on-until-reset";
}

int ctl_show(const struct fg_topology *t)
{
	printf("driver=%s cuda=%d.%d devices=%d\n", t->driver, t->cuda_major, t->cuda_minor, t->count);
	fg_lock();
	for (int i = 0; i < t->count; i++) {
		const struct fg_gpu *g = &t->gpu[i];
		const struct fg_device_state *d = &fg_state()->device[i];
		unsigned current;
		const char *mode = mode_of(g, &current);
		printf("device index=%d uuid=%s model=\"%s\" pci=%04x:%02x:%02x.0 total_mib=%llu used_mib=%llu peak_mib=%llu lost=%u xids=%llu busy_ms=%llu mig=%s\n",
		       i, g->uuid, g->model, g->domain, g->bus, g->slot, (unsigned long long)(g->memory >> 20),
		       (unsigned long long)(fg_used(i) >> 20), (unsigned long long)(fg_used_high(i) >> 20), d->lost, (unsigned long long)d->event_count,
		       (unsigned long long)(d->busy_total_ns / 1000000), mode);
		show_processes(i);
		if (current)
			show_partitions(g);
	}
	fg_unlock();
	return 0;
}
