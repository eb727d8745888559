/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenants.h: containers that share one fake device, under the real library, on the fake driver's
 * own clock: the same every time, and seconds of theirs take a fraction of one. A container may
 * have several processes, which share its limits, its region and its files. Include it once, first.
 */
#include "folder.h"

#include <sys/mount.h>

#define TENANTS 4
#define WORKERS 16 /* processes of a container */
#define SAMPLES 4096
#define ANOTHER 75 /* exit code of a process that another one follows */

struct tenant {
	unsigned percent;
	const char *work;   /* arguments of probe_tenant */
	char mixtures[WORKERS][256]; /* or of probe_mixture, for each process of its own */
	int blocking[WORKERS];       /* that process's launches wait for their work */
	const char *policy; /* NULL: default */
	int priority;
	int borrows; /* has files among its neighbours */
	int hides;   /* and never writes its own */
	int processes; /* 0: one */
	int apart; /* each is PID 1 of a container of its own; the containers share one claim */
	pid_t pid[WORKERS];
	int samples; /* what the device has done for it */
	double at[SAMPLES], had[SAMPLES]; /* seconds */
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
		snprintf(text, sizeof text,
			 "vgpu-limits 1\npriority %d\ndevice 0 " UUID " memory=0 cores=%u\n",
			 t->priority, t->percent);
		write_file(name, text);
		if (!t->hides)
			snprintf(borrow, sizeof borrow, "borrow %s/neighbours/%d\n", dir, i);
	}
	snprintf(name, sizeof name, "limits%d", i);
	snprintf(text, sizeof text,
		 "vgpu-limits 1\nregion %s/%d.cache\npolicy %s\npriority %d\n%s"
		 "device 0 " UUID " memory=0 cores=%u\n",
		 dir, i, t->policy ? t->policy : "default", t->priority, borrow, t->percent);
	write_file(name, text);
}

static int processes_of(const struct tenant *t)
{
	return t->processes ? t->processes : 1;
}

/* fork, with the child in PID and mount namespaces of its own. */
static pid_t fork_apart(void)
{
	if (unshare(CLONE_NEWPID | CLONE_NEWNS))
		_exit(2);
	pid_t pid = fork();
	if (pid == 0 && (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
			 mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL)))
		_exit(2);
	return pid;
}

/*
 * The k-th process of the i-th container, at a place of the clock's; and those that come after it
 * there.
 */
static pid_t start_worker(const struct tenant *t, int i, int k, int place, int places)
{
	char limits[32], demand[256], command[512];
	snprintf(limits, sizeof limits, "limits%d", i);
	snprintf(demand, sizeof demand, "%s/neighbours/%d.demand", dir, i);
	int mixture = t->mixtures[k][0] != 0;
	snprintf(command, sizeof command, "%s/test/test/%s %s", getenv("VGPU_TEST_BUILD"),
		 mixture ? "probe_mixture" : "probe_tenant", mixture ? t->mixtures[k] : t->work);
	fflush(stdout);
	pid_t pid = fork();
	if (pid)
		return pid;
	setenv("PROBE_DEMAND", demand, 1);
	if (t->blocking[k])
		setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
	for (;;) {
		int status;
		pid = t->apart ? fork_apart() : fork();
		if (pid == 0)
			become(limits, place, places, command);
		waitpid(pid, &status, 0);
		if (status != ANOTHER << 8)
			_exit(status ? 1 : 0);
	}
}

static void end_well(pid_t pid)
{
	int status;
	waitpid(pid, &status, 0);
	CHECK_EQ(status, 0);
}

/*
 * One more process, without limits, which says what the device has done for all the others while
 * they run.
 */
static pid_t start_observer(const struct tenant *t, int count, int place, FILE **out)
{
	char command[512];
	int ends[2], seconds, most = 0;
	for (int i = 0; i < count; i++)
		if (sscanf(t[i].mixtures[0][0] ? t[i].mixtures[0] : t[i].work, "%*s %*s %d", &seconds) == 1 && seconds > most)
			most = seconds;
	snprintf(command, sizeof command, "%s/test/test/probe_tenant watch %d %d",
		 getenv("VGPU_TEST_BUILD"), place, most);
	CHECK(!pipe2(ends, O_CLOEXEC));
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(ends[1], 1);
		become("none", place, place + 1, command);
	}
	close(ends[1]);
	*out = fdopen(ends[0], "r");
	return pid;
}

/* Adds up what the observer says of the containers' processes. */
static void collect(struct tenant *t, int count, FILE *f)
{
	double at, had;
	for (int n = 0; n < SAMPLES && fscanf(f, "%lf", &at) == 1; n++)
		for (int i = 0; i < count; i++) {
			t[i].at[n] = at / 1e9;
			t[i].had[n] = 0;
			t[i].samples = n + 1;
			for (int k = 0; k < processes_of(&t[i]) && fscanf(f, "%lf", &had) == 1; k++)
				t[i].had[n] += had / 1e9;
		}
	fclose(f);
}

/* Runs them side by side to their ends. Needs machine(), which serves for one run. */
static void run_tenants(struct tenant *t, int count)
{
	int places = 0, place = 0;
	FILE *out;
	for (int i = 0; i < count; i++)
		places += processes_of(&t[i]);
	pid_t observer = start_observer(t, count, places, &out);
	for (int i = 0; i < count; i++) {
		t[i].samples = 0;
		write_limits(&t[i], i);
		for (int k = 0; k < processes_of(&t[i]); k++)
			t[i].pid[k] = start_worker(&t[i], i, k, place++, places + 1);
	}
	collect(t, count, out);
	for (int i = 0; i < count; i++)
		for (int k = 0; k < processes_of(&t[i]); k++)
			end_well(t[i].pid[k]);
	end_well(observer);
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
