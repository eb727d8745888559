/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "region.h"
#include "limit.h"
#include "testing.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MIB (1ULL << 20)

static struct limits limits = {.source = LIMITS_FILE, .priority = 1};

/* A fresh directory; limits.region lies in it. */
static const char *fresh(void)
{
	static char dir[128];
	snprintf(dir, sizeof dir, "%s/vgpu-region-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	CHECK(mkdtemp(dir) != NULL);
	snprintf(limits.region, sizeof limits.region, "%s/vgpu.cache", dir);
	limits.device[0] = (struct limits_device){.given = 1, .uuid = "GPU-00000000-0000-0000-0000-000000000001",
						  .memory = 100 * MIB, .cores = 30};
	return dir;
}

static void clean(const char *dir)
{
	unlink(limits.region);
	rmdir(dir);
}

static void attach(void)
{
	char why[256] = "";
	if (region_attach(&limits, why, sizeof why))
		printf("    attach: %s\n", why), test_failed_checks++;
}

/* Runs f in a child; its exit code, or 128 + signal. */
static int in_child(int (*f)(void))
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		region_after_fork();
		_exit(f());
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST("the file begins with HAMi's region 1.2 to the byte")
{
	const char *dir = fresh();
	attach();
	CHECK_EQ(region_reserve(0, 10 * MIB, 100 * MIB), 0);
	int fd = open(limits.region, O_RDONLY);
	unsigned char *b = mmap(NULL, VGPU_EXTENSION_OFFSET, PROT_READ, MAP_SHARED, fd, 0);
	CHECK_EQ(*(int32_t *)(b + 0), 19920718);
	CHECK_EQ(*(int32_t *)(b + 4), 1);
	CHECK_EQ(*(int32_t *)(b + 8), 2);
	CHECK_EQ(*(uint64_t *)(b + 56), 1); /* devices */
	CHECK(!strcmp((char *)b + 64, limits.device[0].uuid));
	CHECK_EQ(*(uint64_t *)(b + 1600), 100 * MIB);
	CHECK_EQ(*(uint64_t *)(b + 1728), 30);
	CHECK_EQ(*(int32_t *)(b + 1856), getpid());
	CHECK_EQ(*(uint64_t *)(b + 1856 + 8 + 32), 10 * MIB); /* used[0].total */
	CHECK_EQ(*(int32_t *)(b + 1856 + 1928), 1);           /* status */
	CHECK_EQ(*(uint64_t *)(b + 1856 + 1936), 0);          /* sequence: even */
	CHECK_EQ(*(int32_t *)(b + 2008896), 1);               /* proc_num */
	CHECK_EQ(*(int32_t *)(b + 2008908), 1);               /* priority */
	CHECK_EQ(region_check(), 0);
	clean(dir);
}

TEST("reserving is exact and releasing gives back no more than was taken")
{
	const char *dir = fresh();
	attach();
	CHECK_EQ(region_reserve(0, 100 * MIB, 100 * MIB), 0);
	CHECK(region_reserve(0, 1, 100 * MIB));
	CHECK_EQ(region_reserve(1, 5, 0), 0);
	region_release(0, 1);
	CHECK_EQ(region_reserve(0, 1, 100 * MIB), 0);
	region_release(0, UINT64_MAX);
	CHECK_EQ(region_used(0), 0);
	CHECK_EQ(region_used(1), 5);
	CHECK_EQ(region_check(), 0);
	clean(dir);
}

static int take_60(void)
{
	attach();
	return region_reserve(0, 60 * MIB, 100 * MIB) ? 1 : 0;
}

static int take_60_and_die(void)
{
	take_60();
	return raise(SIGKILL);
}

TEST("two processes share one limit, and an exit gives memory back")
{
	const char *dir = fresh();
	attach();
	CHECK_EQ(region_reserve(0, 50 * MIB, 100 * MIB), 0);
	CHECK_EQ(in_child(take_60), 1);
	region_release(0, 20 * MIB);
	CHECK_EQ(in_child(take_60), 0);
	CHECK_EQ(in_child(take_60), 0); /* the one before is gone */
	CHECK_EQ(region_used(0), 30 * MIB);
	CHECK_EQ(region_check(), 0);
	clean(dir);
}

TEST("SIGKILL gives memory back, a hundred times")
{
	const char *dir = fresh();
	attach();
	for (int i = 0; i < 100 && !test_failed_checks; i++) {
		CHECK_EQ(in_child(take_60_and_die), 128 + SIGKILL);
		CHECK_EQ(region_reserve(0, 100 * MIB, 100 * MIB), 0);
		region_release(0, 100 * MIB);
	}
	CHECK_EQ(region_slot(), 0);
	CHECK(region_memory()->hami.proc_num <= 2);
	clean(dir);
}

static int die_in_lock(void)
{
	attach();
	region_reserve(0, 10 * MIB, 100 * MIB);
	struct vgpu_extension *x = &region_memory()->ext;
	pthread_mutex_lock(&x->mutex);
	x->reserved[0] += 77 * MIB; /* half of a change */
	return raise(SIGKILL);
}

TEST("death inside the lock is repaired by the next one in")
{
	const char *dir = fresh();
	attach();
	CHECK_EQ(region_reserve(0, 5 * MIB, 100 * MIB), 0);
	CHECK_EQ(in_child(die_in_lock), 128 + SIGKILL);
	CHECK_EQ(region_used(0), 5 * MIB);
	CHECK_EQ(region_check(), 0);
	clean(dir);
}

#define RACERS 16

/* One of many that take and give random amounts; 1 when it ever saw more in use than the limit. */
static int race(void)
{
	uint64_t mine = 0;
	attach();
	srand((unsigned)getpid());
	for (int i = 0; i < 2000; i++) {
		uint64_t ask = (uint64_t)(rand() % 20 + 1) * MIB;
		if (region_reserve(0, ask, 100 * MIB) == 0)
			mine += ask;
		if (region_memory()->ext.reserved[0] > 100 * MIB)
			return 1;
		if (rand() % 2) {
			region_release(0, mine);
			mine = 0;
		}
	}
	return rand() % 2 ? 0 : raise(SIGKILL);
}

TEST("sixteen processes racing never exceed the limit, and nothing is left behind")
{
	const char *dir = fresh();
	int status, over = 0;
	attach();
	for (int i = 0; i < RACERS; i++)
		if (fork() == 0) {
			region_after_fork();
			_exit(race());
		}
	while (wait(&status) > 0)
		over += WIFEXITED(status) && WEXITSTATUS(status);
	CHECK_EQ(over, 0);
	CHECK_EQ(region_used(0), 0);
	CHECK_EQ(region_check(), 0);
	clean(dir);
}

struct contest {
	int ready, go, tried, won;
};

static void contend(struct contest *c)
{
	region_after_fork();
	attach();
	__atomic_add_fetch(&c->ready, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&c->go, __ATOMIC_SEQ_CST))
		sched_yield();
	if (region_reserve(0, 2 * MIB, 100 * MIB) == 0)
		__atomic_add_fetch(&c->won, 1, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&c->tried, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&c->tried, __ATOMIC_SEQ_CST) < RACERS) /* keep it until all have tried */
		usleep(100);
	_exit(0);
}

TEST("the last page goes to exactly one of sixteen, every time")
{
	const char *dir = fresh();
	struct contest *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	attach();
	CHECK_EQ(region_reserve(0, 98 * MIB, 100 * MIB), 0);
	for (int round = 0; round < 50 && !test_failed_checks; round++) {
		*c = (struct contest){0};
		for (int i = 0; i < RACERS; i++)
			if (fork() == 0)
				contend(c);
		while (__atomic_load_n(&c->ready, __ATOMIC_SEQ_CST) < RACERS)
			usleep(100);
		__atomic_store_n(&c->go, 1, __ATOMIC_SEQ_CST);
		while (wait(NULL) > 0)
			;
		CHECK_EQ(c->won, 1);
	}
	clean(dir);
}

TEST("a short, a foreign and a half-made file are made anew")
{
	for (int kind = 0; kind < 3; kind++) {
		const char *dir = fresh();
		int fd = open(limits.region, O_RDWR | O_CREAT, 0666);
		CHECK_EQ(ftruncate(fd, kind == 0 ? 100 : (off_t)sizeof(struct vgpu_region)), 0);
		if (kind == 1)
			CHECK_EQ(pwrite(fd, "something else altogether", 25, 0), 25);
		close(fd); /* kind 2: all zero, as after a crash before the first byte */
		attach();
		CHECK_EQ(region_reserve(0, 100 * MIB, 100 * MIB), 0);
		CHECK_EQ(region_check(), 0);
		region_after_fork();
		clean(dir);
	}
}

TEST("a region of plain HAMi size is extended")
{
	const char *dir = fresh();
	int fd = open(limits.region, O_RDWR | O_CREAT, 0666);
	CHECK_EQ(ftruncate(fd, sizeof(struct hami_region)), 0);
	close(fd);
	attach();
	struct stat st;
	CHECK(!stat(limits.region, &st) && st.st_size == (off_t)sizeof(struct vgpu_region));
	clean(dir);
}

TEST("without a usable file the limit holds in the process, with a reason")
{
	static const char *const paths[] = {"/nonexistent/vgpu.cache", "/proc/vgpu.cache", "/tmp"};
	for (int i = 0; i < 3; i++) {
		char why[256] = "";
		strcpy(limits.region, paths[i]);
		CHECK(region_attach(&limits, why, sizeof why));
		CHECK(strstr(why, paths[i]) != NULL);
		CHECK_EQ(region_reserve(0, 100, 100), 0);
		CHECK(region_reserve(0, 1, 100));
		CHECK_EQ(region_used(0), 100);
		CHECK_EQ(region_check(), 0);
		region_after_fork();
	}
}

static int slot_of_child(void)
{
	attach();
	return region_slot();
}

TEST("a slot never moves, and a child after fork has its own")
{
	const char *dir = fresh();
	attach();
	CHECK_EQ(region_slot(), 0);
	CHECK_EQ(in_child(slot_of_child), 1);
	CHECK_EQ(in_child(slot_of_child), 1);
	CHECK_EQ(region_reserve(0, MIB, 0), 0);
	CHECK_EQ(region_memory()->ext.slot[0].used[0], MIB);
	clean(dir);
}

static int all_of_it(void)
{
	attach();
	return region_reserve(0, 100 * MIB, 100 * MIB) ? 1 : 0;
}

TEST("a program that closes all descriptors keeps its memory booked and its own files open")
{
	const char *dir = fresh();
	attach();
	CHECK_EQ(region_reserve(0, 40 * MIB, 100 * MIB), 0);
	for (int fd = 3; fd < 64; fd++)
		close(fd);
	int other = open("/dev/null", O_RDONLY); /* takes the number of the region's descriptor */
	CHECK_EQ(in_child(all_of_it), 1);
	CHECK_EQ(region_reserve(0, 60 * MIB, 100 * MIB), 0);
	CHECK(region_reserve(0, 1, 100 * MIB));
	CHECK_EQ(region_check(), 0);
	region_after_fork();
	CHECK(fcntl(other, F_GETFD) >= 0);
	clean(dir);
}

TEST("a process whose slot was wiped by somebody books again what it holds")
{
	const char *dir = fresh();
	attach();
	CHECK_EQ(region_reserve(0, 40 * MIB, 100 * MIB), 0);
	struct vgpu_extension *x = &region_memory()->ext;
	memset(&x->slot[0], 0, sizeof x->slot[0]);
	memset(&region_memory()->hami.procs[0], 0, sizeof region_memory()->hami.procs[0]);
	x->reserved[0] = 0;
	CHECK(region_reserve(0, 61 * MIB, 100 * MIB));
	CHECK_EQ(region_used(0), 40 * MIB);
	CHECK_EQ(region_check(), 0);
	clean(dir);
}

static int known_in_child(void)
{
	int parent = getppid();
	attach();
	region_flight(0, 1);
	if (!region_has_process(parent) || !region_has_process(getpid()) || region_has_process(parent + 100000) || region_has_process(0))
		return 1;
	return raise(SIGKILL);
}

TEST("processes of the container are known, and who dies in a call disturbs nobody's measuring")
{
	const char *dir = fresh();
	attach();
	CHECK(region_quiet(0));
	region_flight(0, 1);
	CHECK(!region_quiet(0) && region_quiet(1));
	region_flight(0, -1);
	CHECK_EQ(in_child(known_in_child), 128 + SIGKILL);
	CHECK_EQ(region_used(0), 0); /* reaps */
	CHECK(region_quiet(0));
	clean(dir);
}

TEST("what is told and not counted lives and dies with its slot")
{
	const char *dir = fresh();
	attach();
	region_show(0, VGPU_IMPORTED, 30 * (int64_t)MIB);
	region_show(0, VGPU_OVERFLOW, 5 * (int64_t)MIB);
	struct vgpu_slot *s = &region_memory()->ext.slot[region_slot()];
	CHECK_EQ(s->shown[VGPU_IMPORTED][0], 30 * MIB);
	CHECK_EQ(region_used(0), 0);
	memset(s, 0, sizeof *s); /* somebody wipes the slot: it is taken again as it was */
	region_show(0, VGPU_OVERFLOW, -5 * (int64_t)MIB);
	CHECK_EQ(s->shown[VGPU_IMPORTED][0], 30 * MIB);
	CHECK_EQ(s->shown[VGPU_OVERFLOW][0], 0);
	clean(dir);
}

TEST("the umask stays as it is and the file is for every user")
{
	umask(077);
	const char *dir = fresh();
	struct stat st;
	attach();
	CHECK(!stat(limits.region, &st) && (st.st_mode & 0777) == 0666);
	CHECK_EQ(umask(077), 077);
	clean(dir);
}

TEST_MAIN
