/* SPDX-License-Identifier: Apache-2.0 */
/*
 * containers.h: containers that share one claim. Each has PID, mount, IPC and UTS namespaces of its
 * own, so that PIDs repeat, with /proc and /tmp of its own. Limits file and region are mounted at
 * the paths of real containers: /usr/local/vgpu/limits and /tmp/vgpu. The fake card, which is the
 * test's folder, is at /tmp/card. Needs root. Include it once, after machine.h.
 */
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define CONTAINERS 3 /* of a claim, at most */
#define CARD_INSIDE "/tmp/card"
#define REGION_INSIDE "/tmp/vgpu/vgpu.cache"
#define LIMITS_INSIDE "/usr/local/vgpu/limits"
#define CLAIM "claim" /* the region's folder, in the test's */

static const struct {
	const char *name;
	int flag;
} spaces[] = {{"pid", CLONE_NEWPID}, {"mnt", CLONE_NEWNS}, {"ipc", CLONE_NEWIPC}, {"uts", CLONE_NEWUTS}};
#define SPACES (int)(sizeof spaces / sizeof *spaces)

struct container {
	pid_t init; /* 0: not started, or ended */
	int space[SPACES];
};

/* Mounts a folder or file of outside, already open, at a path that is made for it. */
static int mount_opened(int fd, const char *at, int is_file)
{
	char from[64], part[256];
	for (const char *slash = strchr(at + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(part, sizeof part, "%.*s", (int)(slash - at), at);
		(void)mkdir(part, 0755);
	}
	int made = is_file ? open(at, O_CREAT | O_WRONLY | O_CLOEXEC, 0644) : mkdir(at, 01777);
	if (is_file && made >= 0)
		close(made);
	snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
	return mount(from, at, NULL, MS_BIND | MS_REC, NULL);
}

static int open_inside(const char *folder, const char *name)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	return open(path, O_PATH | O_CLOEXEC);
}

/* 0, or -1 with errno. What the test needs of its own /tmp is mounted there again. */
static int mount_container(void)
{
	const char *built[] = {getenv("VGPU_TEST_BUILD"), getenv("VGPU_TEST_FAKE")};
	int card = open_inside(dir, "."), limits = open_inside(dir, "limits"),
	    claim = open_inside(dir, CLAIM), again[2];
	for (int i = 0; i < 2; i++)
		again[i] = open_inside(built[i], ".");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("tmpfs", "/tmp", "tmpfs", 0, NULL) ||
	    mount("tmpfs", "/usr/local", "tmpfs", 0, NULL) || mount_opened(card, CARD_INSIDE, 0) ||
	    mount_opened(claim, "/tmp/vgpu", 0) || mount_opened(limits, LIMITS_INSIDE, 1) ||
	    mount(NULL, LIMITS_INSIDE, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL))
		return -1;
	for (int i = 0; i < 2; i++)
		if (!strncmp(built[i], "/tmp/", 5) && mount_opened(again[i], built[i], 0))
			return -1;
	return mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

/* PID 1 of a container: it waits for orphans, and ends with the test. */
static void run_init(int ready)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int error = mount_container() ? errno : 0;
	if (write(ready, &error, sizeof error) != sizeof error)
		_exit(1);
	syscall(SYS_close_range, 0, ~0U, 0);
	for (;; usleep(1000))
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
}

static void container_forget(struct container *c)
{
	for (int i = 0; i < SPACES; i++)
		close(c->space[i]);
	*c = (struct container){0};
}

/* Starts an empty container. 0, or an errno: EPERM where namespaces cannot be made. */
static int container_start(struct container *c)
{
	int ends[2], error = EIO, flags = SIGCHLD;
	char path[64];
	for (int i = 0; i < SPACES; i++)
		flags |= spaces[i].flag;
	if (pipe2(ends, O_CLOEXEC))
		return errno;
	fflush(stdout);
	pid_t pid = (pid_t)syscall(SYS_clone, (long)flags, 0L, 0L, 0L, 0L);
	if (pid == 0)
		run_init(ends[1]);
	if (pid < 0)
		error = errno;
	*c = (struct container){.init = pid > 0 ? pid : 0};
	for (int i = 0; i < SPACES; i++)
		c->space[i] = -1;
	close(ends[1]);
	if (c->init > 0 && read(ends[0], &error, sizeof error) != sizeof error)
		error = EIO;
	close(ends[0]);
	for (int i = 0; i < SPACES && !error; i++) {
		snprintf(path, sizeof path, "/proc/%d/ns/%s", c->init, spaces[i].name);
		c->space[i] = open(path, O_RDONLY | O_CLOEXEC);
		error = c->space[i] < 0 ? errno : 0;
	}
	return error;
}

/* fork, with the child in a container. There `dir` is the card's folder. */
static pid_t container_fork(const struct container *c)
{
	int home = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
	fflush(stdout);
	pid_t pid = setns(c->space[0], CLONE_NEWPID) ? -1 : fork();
	if (pid) {
		CHECK(!setns(home, CLONE_NEWPID));
		close(home);
		return pid;
	}
	for (int i = 1; i < SPACES; i++)
		if (setns(c->space[i], spaces[i].flag))
			_exit(126);
	snprintf(dir, sizeof dir, CARD_INSIDE);
	return chdir("/") ? _exit(126), 0 : 0;
}

/*
 * Kills all processes of a container, as a runtime does. The test's own children in it have to be
 * waited for, and then its PID 1.
 */
static void container_kill(const struct container *c)
{
	if (c->init > 0)
		kill(c->init, SIGKILL);
}

/* Whether an orphan of a container lives: its parent is PID 1. */
static int container_has_orphan(const struct container *c)
{
	char path[64];
	int pid;
	snprintf(path, sizeof path, "/proc/%d/task/%d/children", c->init, c->init);
	FILE *f = c->init ? fopen(path, "r") : NULL;
	int found = f && fscanf(f, "%d", &pid) == 1;
	if (f)
		fclose(f);
	return found;
}

/* Says why a test does not run, when containers cannot be made here; 1 when they can. */
static int containers_are_possible(void)
{
	struct container c;
	char path[256];
	snprintf(path, sizeof path, "%s/" CLAIM, dir);
	CHECK(!mkdir(path, 01777) && !chmod(path, 01777));
	int error = container_start(&c);
	if (error)
		printf("    not run: no PID and mount namespaces here, which need root: %s\n", strerror(error));
	container_kill(&c);
	if (c.init)
		waitpid(c.init, NULL, 0);
	container_forget(&c);
	return !error;
}
