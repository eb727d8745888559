/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "shm/region.h"
#include "model/limit.h"
#include "platform/prim.h"
#include "testing.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

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
	CHECK_EQ(region_own_slot(), 0);
	CHECK(region_mapping()->hami.proc_num <= 2);
	clean(dir);
}

static int die_in_lock(void)
{
	attach();
	region_reserve(0, 10 * MIB, 100 * MIB);
	struct vgpu_extension *x = &region_mapping()->ext;
	CHECK_EQ(region_lock(), 0);
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
		if (region_mapping()->ext.reserved[0] > 100 * MIB)
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
	/* keep it until all have tried */
	while (__atomic_load_n(&c->tried, __ATOMIC_SEQ_CST) < RACERS)
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

TEST("a file that cannot be used is told with a reason, and can be tried again")
{
	const char *dir = fresh();
	char why[256] = "";
	CHECK(!rmdir(dir));
	for (int i = 0; i < 3; i++) {
		CHECK(region_attach(&limits, why, sizeof why));
		CHECK(strstr(why, limits.region) && strstr(why, "No such file or directory"));
		CHECK(region_mapping() == NULL);
		CHECK(region_reserve(0, 1, 100 * MIB)); /* nothing is admitted meanwhile */
		CHECK_EQ(region_used(0), 0);
	}
	CHECK(!mkdir(dir, 0700));
	attach();
	CHECK_EQ(region_reserve(0, 100 * MIB, 100 * MIB), 0);
	CHECK(region_reserve(0, 1, 100 * MIB));
	CHECK_EQ(region_check(), 0);
	clean(dir);
}

/* Descriptors that are open, so that one which stays open is noticed. */
static int open_descriptors(void)
{
	int n = 0;
	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

TEST("attempts that fail leave no descriptor and no lock behind")
{
	const char *dir = fresh();
	char why[256] = "";
	attach();
	region_mapping()->ext.version = 2;
	region_mapping()->ext.size += 64;
	pid_t pid = fork(); /* the parent's slot stays taken */
	if (pid == 0) {
		region_after_fork();
		int before = open_descriptors();
		for (int i = 0; i < 100; i++)
			if (!region_attach(&limits, why, sizeof why))
				_exit(1);
		_exit(open_descriptors() == before ? 0 : 2);
	}
	int status = 0;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	clean(dir);
}

/* Attaches as another user, when `go` is closed. */
static int attach_as(uid_t user, const int go[2])
{
	char why[256] = "", none;
	umask(077);
	close(go[1]);
	if (setuid(user) || read(go[0], &none, 1))
		_exit(2);
	if (region_attach(&limits, why, sizeof why) == 0)
		return 0;
	printf("    attach: %s\n", why);
	return 1;
}

TEST("users who come at once all join the region that one of them makes")
{
	for (int round = 0; round < 300 && geteuid() == 0; round++) {
		const char *dir = fresh();
		int go[2], status = 0, failed = 0;
		CHECK(!chmod(dir, 01777) && !pipe(go));
		for (uid_t user = 1; user <= 4; user++)
			if (fork() == 0)
				_exit(attach_as(user, go));
		close(go[0]);
		close(go[1]);
		while (wait(&status) > 0)
			failed += status != 0;
		CHECK_EQ(failed, 0);
		clean(dir);
	}
}

static int slot_of_child(void)
{
	attach();
	return region_own_slot();
}

TEST("a region whose slots are all taken says so, and has room again when one is free")
{
	const char *dir = fresh();
	char why[256] = "";
	int fd = open(limits.region, O_RDWR | O_CREAT, 0666);
	struct flock all = {.l_type = F_WRLCK, .l_start = VGPU_SLOT_LOCK, .l_len = HAMI_PROCESSES};
	CHECK_EQ(in_child(slot_of_child), 0); /* makes it */
	CHECK(!fcntl(fd, F_OFD_SETLK, &all));
	CHECK(region_attach(&limits, why, sizeof why));
	CHECK(strstr(why, "as many processes as it has room for"));
	all.l_type = F_UNLCK;
	all.l_start += 7;
	all.l_len = 1;
	CHECK(!fcntl(fd, F_OFD_SETLK, &all));
	attach();
	CHECK_EQ(region_own_slot(), 7);
	close(fd);
	clean(dir);
}

TEST("without a usable file private accounts hold the limit in the process")
{
	static const char *const paths[] = {"/nonexistent/vgpu.cache", "/proc/vgpu.cache", "/tmp"};
	for (int i = 0; i < 3; i++) {
		char why[256] = "";
		strcpy(limits.region, paths[i]);
		CHECK(region_attach(&limits, why, sizeof why));
		CHECK(strstr(why, paths[i]) != NULL);
		region_attach_private(&limits);
		CHECK_EQ(region_reserve(0, 100, 100), 0);
		CHECK(region_reserve(0, 1, 100));
		CHECK_EQ(region_used(0), 100);
		CHECK_EQ(region_check(), 0);
		region_after_fork();
	}
}

TEST("a slot never moves, and a child after fork has its own")
{
	const char *dir = fresh();
	attach();
	CHECK_EQ(region_own_slot(), 0);
	CHECK_EQ(in_child(slot_of_child), 1);
	CHECK_EQ(in_child(slot_of_child), 1);
	CHECK_EQ(region_reserve(0, MIB, 0), 0);
	CHECK_EQ(region_mapping()->ext.slot[0].used[0], MIB);
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
	struct vgpu_extension *x = &region_mapping()->ext;
	memset(&x->slot[0], 0, sizeof x->slot[0]);
	memset(&region_mapping()->hami.procs[0], 0, sizeof region_mapping()->hami.procs[0]);
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
	region_add_in_flight(0, 1);
	if (!region_has_process(parent) || !region_has_process(getpid()) || region_has_process(parent + 100000) || region_has_process(0))
		return 1;
	return raise(SIGKILL);
}

TEST("processes of the container are known, and who dies in a call disturbs nobody's measuring")
{
	const char *dir = fresh();
	attach();
	CHECK(region_is_quiet(0));
	region_add_in_flight(0, 1);
	CHECK(!region_is_quiet(0) && region_is_quiet(1));
	region_add_in_flight(0, -1);
	CHECK_EQ(in_child(known_in_child), 128 + SIGKILL);
	CHECK_EQ(region_used(0), 0); /* reaps */
	CHECK(region_is_quiet(0));
	clean(dir);
}

#define NO_NAMESPACE 77

/* In a PID namespace of its own, with the /proc of the test's. */
static int has_identity_inside(void)
{
	int status;
	if (unshare(CLONE_NEWPID))
		return NO_NAMESPACE;
	pid_t pid = fork();
	if (pid == 0)
		_exit(prim_process_identity() != 0);
	return waitpid(pid, &status, 0) == pid ? WEXITSTATUS(status) : 2;
}

TEST("a /proc of other PIDs tells nobody's identity, so nobody is found dead by it")
{
	CHECK(prim_process_identity() != 0);
	int code = in_child(has_identity_inside);
	if (code == NO_NAMESPACE)
		printf("    not run: no PID namespace here, which needs root\n");
	else
		CHECK_EQ(code, 0);
}

TEST("what is told and not counted lives and dies with its slot")
{
	const char *dir = fresh();
	attach();
	region_add_uncounted(0, VGPU_IMPORTED, 30 * (int64_t)MIB);
	region_add_uncounted(0, VGPU_OVERFLOW, 5 * (int64_t)MIB);
	struct vgpu_slot *s = &region_mapping()->ext.slot[region_own_slot()];
	CHECK_EQ(s->shown[VGPU_IMPORTED][0], 30 * MIB);
	CHECK_EQ(region_used(0), 0);
	memset(s, 0, sizeof *s); /* somebody wipes the slot: it is taken again as it was */
	region_add_uncounted(0, VGPU_OVERFLOW, -5 * (int64_t)MIB);
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

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Starts f in a child that says when it is ready; see say_ready. */
static int ready[2];
static pid_t beside(void (*f)(void))
{
	char c;
	CHECK(!pipe(ready));
	pid_t pid = fork();
	if (pid == 0) {
		region_after_fork();
		f();
		_exit(0);
	}
	CHECK_EQ(read(ready[0], &c, 1), 1);
	return pid;
}

static void say_ready(void)
{
	CHECK_EQ(write(ready[1], "x", 1), 1);
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void hold_20_and_wait(void)
{
	attach();
	region_reserve(0, 20 * MIB, 100 * MIB);
	say_ready();
	for (;;)
		pause();
}

/*
 * One of each: numbers of nobody, of the dead, of ourselves, of a newcomer, of a living process
 * that has not got the lock.
 */
TEST("whatever stands in the lock word, everybody goes on and the books stay right")
{
	static const uint32_t words[] = {1, 2, 3, 77, 1024, 1025, 1026, 0x7fffffff, 0x80000000,
					 0x80000001, 0x80000002, 0xffffffff};
	setenv("HAMICORE_TEST_PATIENCE_MS", "200", 1);
	const char *dir = fresh();
	attach();
	pid_t other = beside(hold_20_and_wait);
	double began = seconds();
	for (size_t i = 0; i < 1000; i++) {
		uint32_t any = (uint32_t)rand() << 1 ^ (uint32_t)rand();
		region_mapping()->ext.lock = i < sizeof words / sizeof *words ? words[i] : any;
		CHECK_EQ(region_reserve(0, 80 * MIB, 100 * MIB), 0);
		CHECK(region_reserve(0, 1, 100 * MIB));
		region_release(0, 80 * MIB);
	}
	CHECK(seconds() - began < 3);
	CHECK_EQ(region_used(0), 20 * MIB);
	CHECK_EQ(region_check(), 0);
	end(other);
	clean(dir);
}

static void stop_in_lock(void)
{
	attach();
	region_reserve(0, 20 * MIB, 100 * MIB);
	region_lock();
	say_ready();
	raise(SIGSTOP);
	region_unlock();
	_exit(region_reserve(0, 30 * MIB, 100 * MIB) ? 1 : region_reserve(0, 1, 100 * MIB) ? 0 : 2);
}

TEST("a holder who is stopped delays others by their patience in all calls together, and loses "
     "nothing")
{
	int status;
	setenv("HAMICORE_TEST_PATIENCE_MS", "300", 1);
	const char *dir = fresh();
	attach();
	pid_t other = beside(stop_in_lock);
	double began = seconds();
	CHECK_EQ(region_reserve(0, 50 * MIB, 100 * MIB), 0);
	CHECK(seconds() - began > 0.2 && seconds() - began < 1);
	began = seconds();
	for (int i = 0; i < 1000; i++)
		CHECK(region_reserve(0, 31 * MIB, 100 * MIB)); /* the 20 of the stopped one count */
	CHECK(seconds() - began < 1);
	kill(other, SIGCONT);
	CHECK(waitpid(other, &status, 0) == other && status == 0);
	CHECK_EQ(region_check(), 0);
	clean(dir);
}

TEST("a newcomer waits for a stopped holder no longer than its patience")
{
	setenv("HAMICORE_TEST_PATIENCE_MS", "300", 1);
	const char *dir = fresh();
	pid_t other = beside(stop_in_lock);
	double began = seconds();
	attach();
	CHECK(region_reserve(0, 81 * MIB, 100 * MIB));
	CHECK_EQ(region_reserve(0, 80 * MIB, 100 * MIB), 0);
	CHECK(seconds() - began < 1);
	end(other);
	clean(dir);
}

static void hold_format_lock(void)
{
	struct flock l = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = VGPU_FORMAT_LOCK, .l_len = 1};
	int fd = open(limits.region, O_RDWR | O_CREAT, 0666);
	CHECK(!fcntl(fd, F_OFD_SETLK, &l));
	say_ready();
	for (;;)
		pause();
}

TEST("who holds the format lock for ever delays a newcomer by its patience, and the books are "
     "shared")
{
	setenv("HAMICORE_TEST_PATIENCE_MS", "300", 1);
	const char *dir = fresh();
	pid_t other = beside(hold_format_lock);
	double began = seconds();
	attach();
	CHECK(seconds() - began < 1);
	CHECK_EQ(region_reserve(0, 50 * MIB, 100 * MIB), 0);
	CHECK_EQ(in_child(take_60), 1);
	end(other);
	clean(dir);
}

#define STOPPED 6

struct tally {
	int64_t held;
	int over, stop;
};

/* Takes and gives until it is told to stop; what all hold is added up beside the region. */
static void add_up(struct tally *t)
{
	attach(); /* with all the patience there is: a file that is being made is waited for */
	setenv("HAMICORE_TEST_PATIENCE_MS", "5", 1);
	srand((unsigned)getpid());
	while (!__atomic_load_n(&t->stop, __ATOMIC_SEQ_CST)) {
		int64_t ask = (rand() % 40 + 1) * (int64_t)MIB;
		if (region_reserve(0, (uint64_t)ask, 100 * MIB))
			continue;
		if (__atomic_add_fetch(&t->held, ask, __ATOMIC_SEQ_CST) > 100 * (int64_t)MIB)
			__atomic_add_fetch(&t->over, 1, __ATOMIC_SEQ_CST);
		__atomic_sub_fetch(&t->held, ask, __ATOMIC_SEQ_CST);
		region_release(0, (uint64_t)ask);
	}
}

TEST("processes that are stopped at random moments, the lock taken from them or not, never hold "
     "more than the limit together")
{
	pid_t pid[STOPPED];
	int rounds = getenv("VGPU_STRESS_ROUNDS") ? atoi(getenv("VGPU_STRESS_ROUNDS")) : 150;
	setenv("LIBCUDA_LOG_LEVEL", "0", 1);
	const char *dir = fresh();
	struct tally *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < STOPPED; i++)
		if ((pid[i] = fork()) == 0) {
			add_up(t);
			_exit(0);
		}
	usleep(100000); /* they have joined, and are stopped at their work */
	for (int i = 0; i < rounds; i++) {
		pid_t who = pid[rand() % STOPPED];
		kill(who, SIGSTOP);
		usleep((useconds_t)(rand() % 20000));
		kill(who, SIGCONT);
	}
	t->stop = 1;
	while (wait(NULL) > 0)
		;
	CHECK_EQ(t->over, 0);
	attach();
	CHECK_EQ(region_used(0), 0);
	CHECK_EQ(region_check(), 0);
	clean(dir);
}

/* What a newcomer sees of a file that others use: all they have, and it may have the rest. */
static int rest_is_40(void)
{
	attach();
	int more = region_reserve(0, 40 * MIB + 1, 100 * MIB) == 0;
	return more || region_reserve(0, 40 * MIB, 100 * MIB) ? 1 : 0;
}

TEST("a spoilt header of a file that somebody uses is written again, and nothing else in it "
     "changes")
{
	setenv("LIBCUDA_LOG_LEVEL", "0", 1);
	const char *dir = fresh();
	attach();
	CHECK_EQ(region_reserve(0, 60 * MIB, 100 * MIB), 0);
	struct vgpu_region *r = region_mapping();
	for (int kind = 0; kind < 6; kind++) {
		void *words[] = {&r->hami.magic, &r->hami.major, &r->ext.magic, &r->ext.version,
				 &r->ext.size};
		if (kind < 5)
			*(uint32_t *)words[kind] = 0x5b5b5b5b;
		else
			memset(r, 0, offsetof(struct vgpu_region, ext.slot)); /* the sums with it */
		CHECK_EQ(in_child(rest_is_40), 0);
		CHECK_EQ(region_own_slot(), 0);
		CHECK(r->hami.magic == HAMI_MAGIC && r->hami.major == 1);
		CHECK(r->ext.magic == VGPU_EXTENSION_MAGIC);
		CHECK(r->ext.version == VGPU_EXTENSION_VERSION && r->ext.size == sizeof r->ext);
		CHECK_EQ(region_used(0), 60 * MIB);
	}
	for (int i = 0; i < 256; i++) /* what nobody asks for is looked at now and then */
		region_release(0, 0);
	CHECK_EQ(region_check(), 0);
	clean(dir);
}

static int alone_beside_another_version(void)
{
	char why[256] = "";
	if (!region_attach(&limits, why, sizeof why) || !strstr(why, "another version"))
		return 1;
	region_attach_private(&limits);
	return region_reserve(0, 100 * MIB, 100 * MIB) || !region_reserve(0, 1, 100 * MIB) ? 2 : 0;
}

/* A process of another version, while it uses the file. */
static int use_as_another_version(void)
{
	attach();
	CHECK_EQ(region_reserve(0, 60 * MIB, 100 * MIB), 0);
	struct vgpu_extension *x = &region_mapping()->ext;
	x->version = 2;
	x->size = sizeof *x + 64;
	CHECK_EQ(in_child(alone_beside_another_version), 0);
	CHECK(x->version == 2 && x->size == sizeof *x + 64);
	CHECK(x->slot[0].used[0] == 60 * MIB && x->reserved[0] == 60 * MIB);
	return test_failed_checks;
}

TEST("a file that processes of another version use is left alone, one that they have left is "
     "taken over")
{
	const char *dir = fresh();
	CHECK_EQ(in_child(use_as_another_version), 0);
	attach();
	CHECK_EQ(region_used(0), 0);
	CHECK_EQ(region_reserve(0, 100 * MIB, 100 * MIB), 0);
	clean(dir);
}

TEST("no file becomes shorter, so whoever has mapped it can still read it")
{
	const char *dir = fresh();
	size_t size = sizeof(struct vgpu_region) + 100000;
	int fd = open(limits.region, O_RDWR | O_CREAT, 0666);
	CHECK(!ftruncate(fd, (off_t)size));
	unsigned char *monitor = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	memset(monitor, 0xa5, size);
	attach();
	CHECK_EQ(region_reserve(0, 100 * MIB, 100 * MIB), 0);
	CHECK_EQ(monitor[size - 1], 0xa5);
	CHECK_EQ(region_check(), 0);
	clean(dir);
}

/*
 * What can become of the file while it is mapped, beside being cut before its last page: who
 * touches what was cut gets SIGBUS.
 */
TEST("a file that is made shorter within its last page, longer, full of holes, renamed or deleted "
     "holds nobody up")
{
	const size_t size = sizeof(struct vgpu_region);
	const char *dir = fresh();
	char other[sizeof limits.region + 8];
	attach();
	int fd = open(limits.region, O_RDWR);
	snprintf(other, sizeof other, "%s.old", limits.region);
	for (int kind = 0; kind < 5; kind++) {
		CHECK_EQ(region_reserve(0, 60 * MIB, 100 * MIB), 0);
		switch (kind) {
		case 0: CHECK(!ftruncate(fd, (off_t)(size / 4096 * 4096 + 1))); break;
		case 1: CHECK(!ftruncate(fd, (off_t)(2 * size))); break;
		case 2:
			CHECK(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)size));
			break;
		case 3: CHECK(!rename(limits.region, other)); break;
		default: CHECK(!unlink(other)); break;
		}
		CHECK(region_reserve(0, 41 * MIB, 100 * MIB));
		CHECK_EQ(region_reserve(0, 40 * MIB, 100 * MIB), 0);
		region_release(0, 100 * MIB);
		CHECK_EQ(region_used(0), 0);
		CHECK_EQ(region_check(), 0);
	}
	clean(dir);
}

static int cut_file_comes_back(void)
{
	attach();
	return region_reserve(0, 40 * MIB, 100 * MIB) ? 1 : 0;
}

TEST("a file that was cut is as long again when the next process comes, and those who did not "
     "touch it go on")
{
	setenv("LIBCUDA_LOG_LEVEL", "0", 1);
	const char *dir = fresh();
	attach();
	CHECK_EQ(region_reserve(0, 60 * MIB, 100 * MIB), 0);
	CHECK(!truncate(limits.region, 0));
	CHECK_EQ(in_child(cut_file_comes_back), 0);
	CHECK(region_reserve(0, 41 * MIB, 100 * MIB));
	CHECK_EQ(region_reserve(0, 40 * MIB, 100 * MIB), 0);
	CHECK_EQ(region_check(), 0);
	clean(dir);
}

static int ask_for_everything(void)
{
	attach();
	for (int i = 0; i < 20000; i++)
		if (!region_reserve(1, UINT64_MAX - (i % 2 ? PAGE_BYTES - 1 : 0), 0))
			return 1;
	return 0;
}

TEST("who asks an unlimited device for more than any card has is refused, and nobody else is "
     "meanwhile")
{
	int status, refused = 0;
	const char *dir = fresh();
	attach();
	pid_t pid = fork();
	if (pid == 0) {
		region_after_fork();
		_exit(ask_for_everything());
	}
	while (waitpid(pid, &status, WNOHANG) == 0) {
		refused += region_reserve(1, PAGE_BYTES, 0) != 0;
		region_release(1, PAGE_BYTES);
	}
	CHECK_EQ(status, 0);
	CHECK_EQ(refused, 0);
	clean(dir);
}

static void go_on_when_asked(void)
{
	attach();
	region_reserve(0, 20 * MIB, 100 * MIB);
	say_ready();
	raise(SIGSTOP);
	region_release(0, 10 * MIB);
	raise(SIGSTOP);
}

TEST("a slot that claims any amount is right again when its owner does something, or is dead")
{
	static const uint64_t claims[] = {UINT64_MAX, 1ULL << 63, 1ULL << 48, 200 * MIB};
	for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
		int status;
		const char *dir = fresh();
		attach();
		pid_t other = beside(go_on_when_asked);
		CHECK(waitpid(other, &status, WUNTRACED) == other && WIFSTOPPED(status));
		struct vgpu_slot *theirs = &region_mapping()->ext.slot[1];
		theirs->used[0] = claims[i];
		region_mapping()->ext.changed = 1;
		CHECK(region_reserve(0, MIB, 100 * MIB));
		CHECK_EQ(region_reserve(1, MIB, 0), 0); /* no limit: nobody's sum refuses */
		kill(other, SIGCONT);
		CHECK(waitpid(other, &status, WUNTRACED) == other && WIFSTOPPED(status));
		CHECK_EQ(region_used(0), 10 * MIB);
		CHECK_EQ(region_reserve(0, 90 * MIB, 100 * MIB), 0);
		region_release(0, 90 * MIB);
		theirs->used[0] = claims[i];
		end(other);
		CHECK_EQ(region_reserve(0, 100 * MIB, 100 * MIB), 0);
		region_after_fork();
		clean(dir);
	}
}

TEST("numbers of slots that cannot be are put right")
{
	static const int32_t counts[] = {-1, 0, 1025, INT32_MAX, INT32_MIN};
	const char *dir = fresh();
	attach();
	pid_t other = beside(hold_20_and_wait);
	struct region_process list[4];
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		region_mapping()->hami.proc_num = counts[i];
		CHECK(region_reserve(0, 81 * MIB, 100 * MIB));
		CHECK_EQ(region_mapping()->hami.proc_num, 2);
		region_mapping()->hami.proc_num = counts[i];
		CHECK_EQ(region_processes(0, list, 4), 1);
		CHECK(region_has_process(other) && region_is_quiet(0));
	}
	end(other);
	clean(dir);
}

TEST("the size of a context that somebody has written is not believed")
{
	unsigned tries;
	const char *dir = fresh();
	attach();
	for (int i = 0; i < 1000; i++) {
		region_learn_context(0, 527 * MIB + (uint64_t)i, REGION_EXACT);
		CHECK_EQ(region_context_bytes(0, &tries), 527 * MIB + (uint64_t)i);
		CHECK_EQ(tries, REGION_CONTEXT_TRIES);
		region_mapping()->ext.context[0] ^= 1ULL << (i % 64);
		CHECK_EQ(region_context_bytes(0, &tries), 0);
		CHECK_EQ(tries, 0);
	}
	clean(dir);
}

TEST("who is said to be in a checkpoint has no more than its limit, whatever the others are said "
     "to have")
{
	static const uint64_t sums[] = {0, 1, 50 * MIB, -1ULL, -30 * MIB, -50 * MIB, 1ULL << 63};
	for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
		const char *dir = fresh();
		attach();
		CHECK_EQ(region_reserve(0, 50 * MIB, 100 * MIB), 0);
		region_mapping()->ext.slot[0].suspended = 1;
		region_mapping()->ext.reserved[0] = sums[i];
		CHECK(region_reserve(0, 51 * MIB, 100 * MIB));
		region_mapping()->ext.slot[0].suspended = 0;
		CHECK_EQ(region_reserve(0, 50 * MIB, 100 * MIB), 0);
		region_after_fork();
		clean(dir);
	}
}

TEST_MAIN
