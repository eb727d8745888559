/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenants.h: containers that share one fake device, under the real library, on the fake driver's own
 * clock: the same every time, and seconds of theirs take a fraction of one. Include it once, first.
 */
#include "folder.h"

#define TENANTS 4
#define SAMPLES 4096

struct tenant {
	unsigned percent;
	const char *work;   /* arguments of probe_tenant */
	const char *policy; /* NULL: default */
	int priority;
	int borrows; /* has files among its neighbours */
	int hides;   /* and never writes its own */
	int samples;
	double at[SAMPLES], had[SAMPLES]; /* seconds */
	pid_t pid;
	int out;
};

/* A device of its own for each test. */
static void machine(void)
{
	char path[256];
	make_folder();
	snprintf(path, sizeof path, "%s/neighbours", dir);
	CHECK(!mkdir(path, 0755));
}

/* What the node writes for it. */
static void write_limits(const struct tenant *t, int i)
{
	char name[32], text[1024], borrow[256] = "";
	if (t->borrows) {
		snprintf(name, sizeof name, "neighbours/%d.demand", i);
		write_file(name, "");
		snprintf(name, sizeof name, "neighbours/%d.share", i);
		snprintf(text, sizeof text, "vgpu-limits 1\npriority %d\ndevice 0 " UUID " memory=0 cores=%u\n", t->priority, t->percent);
		write_file(name, text);
		if (!t->hides)
			snprintf(borrow, sizeof borrow, "borrow %s/neighbours/%d\n", dir, i);
	}
	snprintf(name, sizeof name, "limits%d", i);
	snprintf(text, sizeof text, "vgpu-limits 1\nregion %s/%d.cache\npolicy %s\npriority %d\n%sdevice 0 " UUID " memory=0 cores=%u\n",
		 dir, i, t->policy ? t->policy : "default", t->priority, borrow, t->percent);
	write_file(name, text);
}

static void start_tenant(struct tenant *t, int i, int count)
{
	char limits[32], demand[256], command[512];
	int ends[2];
	snprintf(limits, sizeof limits, "limits%d", i);
	snprintf(demand, sizeof demand, "%s/neighbours/%d.demand", dir, i);
	snprintf(command, sizeof command, "%s/test/test/probe_tenant %s", getenv("VGPU_TEST_BUILD"), t->work);
	write_limits(t, i);
	CHECK(!pipe2(ends, O_CLOEXEC));
	fflush(stdout);
	t->pid = fork();
	if (t->pid == 0) {
		dup2(ends[1], 1);
		setenv("PROBE_DEMAND", demand, 1);
		become(limits, i, count, command);
	}
	close(ends[1]);
	t->out = ends[0];
}

static void collect(struct tenant *t)
{
	int status;
	FILE *f = fdopen(t->out, "r");
	for (t->samples = 0; t->samples < SAMPLES && fscanf(f, "%lf %lf", &t->at[t->samples], &t->had[t->samples]) == 2; t->samples++) {
		t->at[t->samples] /= 1e9;
		t->had[t->samples] /= 1e9;
	}
	fclose(f);
	waitpid(t->pid, &status, 0);
	CHECK_EQ(status, 0);
}

/* Runs them side by side to their ends. Needs machine(), which serves for one run. */
static void run_tenants(struct tenant *t, int count)
{
	for (int i = 0; i < count; i++)
		start_tenant(&t[i], i, count);
	for (int i = 0; i < count; i++)
		collect(&t[i]);
}

/* Seconds of the device that a tenant had had at a moment. */
static double had(const struct tenant *t, double at)
{
	int i = 1;
	while (i < t->samples - 1 && t->at[i] < at)
		i++;
	if (t->samples < 2 || at <= t->at[0])
		return 0;
	double part = (at - t->at[i - 1]) / (t->at[i] - t->at[i - 1]);
	return t->had[i - 1] + (t->had[i] - t->had[i - 1]) * (part > 1 ? 1 : part);
}

/* Percent of the device's time between two moments. */
static double share(const struct tenant *t, double from, double to)
{
	return (had(t, to) - had(t, from)) / (to - from) * 100;
}
