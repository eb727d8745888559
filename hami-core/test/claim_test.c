/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim_test.c: containers of different PID and mount namespaces that share one claim, so one
 * region, one limits file and one budget. PIDs repeat in them: the first process of each has the
 * same. The witness is the fake card's own count. truth_test.c runs random programs in such
 * containers.
 */
#include "machine.h"

#include <stdarg.h>

#include "containers.h"
#include "state.h"

#define LIMIT (64ULL << 20)
#define PAGE (2ULL << 20)
#define CARD_MINOR 1 /* the fake machine's number of CUDA's device 0 */

struct process {
	pid_t pid; /* as the test sees it */
	FILE *to, *from;
};

static struct container box[CONTAINERS];
static char reply[8192];

/* What the card has given out of CUDA's device 0, by its own count. */
static uint64_t card_used(void)
{
	fg_lock();
	uint64_t bytes = fg_used(CARD_MINOR);
	fg_unlock();
	return bytes;
}

static uint64_t card_peak(void)
{
	fg_lock();
	uint64_t bytes = fg_used_high(CARD_MINOR);
	fg_unlock();
	return bytes;
}

static const char *read_reply(struct process *p)
{
	if (!fgets(reply, sizeof reply, p->from))
		snprintf(reply, sizeof reply, "(ended)");
	reply[strcspn(reply, "\n")] = 0;
	return reply;
}

/* Has a process carry out a command of probe_claim.c; its answer. */
__attribute__((format(printf, 2, 3))) static const char *send_command(struct process *p, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vfprintf(p->to, format, args);
	va_end(args);
	fputc('\n', p->to);
	fflush(p->to);
	return read_reply(p);
}

#define EXPECT(process, want, ...) expect_reply(__LINE__, send_command(process, __VA_ARGS__), want)

static void expect_reply(int line, const char *got, const char *want)
{
	if (!strcmp(got, want))
		return;
	test_failed_checks++;
	printf("    claim_test.c:%d: got \"%s\", want \"%s\"\n", line, got, want);
}

/* Starts a process in a container; `lists` is FAKEGPU_NVML_PROCESSES. */
static struct process start_process(const struct container *c, const char *lists)
{
	char path[256];
	int in[2], out[2];
	snprintf(path, sizeof path, "%s/test/test/probe_claim", getenv("VGPU_TEST_BUILD"));
	CHECK(!pipe2(in, O_CLOEXEC) && !pipe2(out, O_CLOEXEC));
	pid_t pid = container_fork(c);
	if (pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		become(getenv("VGPU_TEST_PRELOAD"), (char *const[]){path, NULL},
		       (const char *const[]){"HAMICORE_TEST_LIMITS", LIMITS_INSIDE, "PROBE_UUID", U0,
					     "FAKEGPU_NVML_PROCESSES", lists, "LIBCUDA_LOG_LEVEL", "0", NULL});
	}
	CHECK(pid > 0);
	close(in[0]);
	close(out[1]);
	struct process p = {pid, fdopen(in[1], "w"), fdopen(out[0], "r")};
	expect_reply(__LINE__, read_reply(&p), "ready");
	return p;
}

static void wait_for_end(struct process *p)
{
	waitpid(p->pid, NULL, 0);
	fclose(p->to);
	fclose(p->from);
}

static void kill_process(struct process *p)
{
	if (p->pid > 0)
		kill(p->pid, SIGKILL);
	wait_for_end(p);
}

/* A machine with so many containers of one claim. 0: there can be none here. */
static int share_claim(int containers)
{
	char error[256];
	machine("vgpu-limits 1\nregion " REGION_INSIDE "\ndevice 0 " U0 " memory=67108864 cores=0\n");
	signal(SIGPIPE, SIG_IGN);
	if (!containers_are_possible())
		return 0;
	CHECK(!fg_state_open(dir, error, sizeof error));
	for (int i = 0; i < containers; i++)
		CHECK_EQ(container_start(&box[i]), 0);
	return !test_failed_checks;
}

static void end_claim(void)
{
	CHECK(card_peak() <= LIMIT);
	for (int i = 0; i < CONTAINERS; i++)
		if (box[i].init)
			container_kill(&box[i]);
	while (wait(NULL) > 0) /* PID 1 ends when all others have been waited for */
		;
	done();
}

/* Whether the whole limit, and not a page more, is to be had by a process when nobody has any. */
static void expect_whole_limit(struct process *p)
{
	EXPECT(p, "ok", "alloc %llu", LIMIT);
	EXPECT(p, "2", "alloc 1");
	CHECK_EQ(card_used(), LIMIT);
	EXPECT(p, "ok", "free");
}

TEST("two containers fill one budget to the page, are told the same, and get no page more")
{
	static const char *const lists[] = {"own", "host", "zero", "none"};
	if (!share_claim(2))
		return done();
	for (int i = 0; i < 4; i++) {
		struct process a = start_process(&box[0], lists[i]), b = start_process(&box[1], lists[i]);
		int same = atoi(send_command(&a, "pid"));
		CHECK_EQ(atoi(send_command(&b, "pid")), same);
		for (uint64_t n = 0; n < LIMIT / PAGE; n++)
			EXPECT(n % 3 ? &a : &b, "ok", "alloc %llu", PAGE);
		CHECK_EQ(card_used(), LIMIT);
		for (int k = 0; k < 2; k++) {
			struct process *p = k ? &a : &b;
			EXPECT(p, "2", "alloc 1");
			EXPECT(p, "0 67108864", "info");
			EXPECT(p, "0 67108864 67108864", "nvml");
		}
		EXPECT(&a, "ok", "free");
		EXPECT(&b, "44040192 67108864", "info");
		EXPECT(&b, "44040192 67108864 23068672", "nvml");
		EXPECT(&a, "44040192 67108864", "info");
		EXPECT(&b, "ok", "free");
		expect_whole_limit(&a);
		expect_whole_limit(&b);
		kill_process(&a);
		kill_process(&b);
	}
	end_claim();
}

TEST("memory of a process that ends in any way in one container comes back to the other")
{
	static const char *const ways[] = {"exit", "_exit", "crash", "SIGKILL", "container"};
	if (!share_claim(2))
		return done();
	struct process b = start_process(&box[1], "own");
	for (int i = 0; i < 20; i++) {
		const char *way = ways[i % 5];
		struct process a = start_process(&box[0], "own");
		EXPECT(&a, "ok", "alloc %llu", LIMIT - PAGE);
		EXPECT(&b, "ok", "alloc %llu", PAGE);
		EXPECT(&b, "2", "alloc 1");
		if (!strcmp(way, "container"))
			container_kill(&box[0]);
		else if (!strcmp(way, "SIGKILL"))
			kill_process(&a);
		else
			send_command(&a, "%s", way);
		if (strcmp(way, "SIGKILL"))
			wait_for_end(&a);
		EXPECT(&b, "ok", "alloc %llu", LIMIT - PAGE);
		EXPECT(&b, "ok", "free");
		if (strcmp(way, "container"))
			continue;
		waitpid(box[0].init, NULL, 0);
		container_forget(&box[0]);
		CHECK_EQ(container_start(&box[0]), 0);
	}
	end_claim();
}

/*
 * A program that closes descriptors loses the lock that is its own alone, and another container
 * cannot look its PID up: it has none of that number, or another process.
 */
TEST("a living process stays charged where its PID is nobody's or somebody else's")
{
	if (!share_claim(3))
		return done();
	struct process a = start_process(&box[0], "own"), second = start_process(&box[0], "own");
	struct process b = start_process(&box[1], "own");
	EXPECT(&second, "ok", "alloc %llu", 40ULL << 20);
	EXPECT(&second, "ok", "hide");
	EXPECT(&b, "2", "alloc %llu", 26ULL << 20);
	struct process namesake = start_process(&box[1], "own");
	int same = atoi(send_command(&second, "pid"));
	CHECK_EQ(atoi(send_command(&namesake, "pid")), same);
	EXPECT(&namesake, "2", "alloc %llu", 26ULL << 20);
	kill_process(&namesake); /* now the number is a dead process's there */
	struct process c = start_process(&box[2], "own");
	for (int i = 0; i < 3; i++) {
		struct process *p = i == 0 ? &a : i == 1 ? &b : &c;
		EXPECT(p, "2", "alloc %llu", 26ULL << 20);
		EXPECT(p, "25165824 67108864", "info");
	}
	EXPECT(&c, "ok", "alloc %llu", 24ULL << 20);
	EXPECT(&c, "ok", "free");
	kill_process(&second);
	expect_whole_limit(&c);
	expect_whole_limit(&a);
	kill_process(&a);
	kill_process(&b);
	kill_process(&c);
	end_claim();
}

TEST("a dead process's memory comes back to another container while a child of it lives that no "
     "fork handler has seen")
{
	if (!share_claim(2))
		return done();
	struct process a = start_process(&box[0], "own"), b = start_process(&box[1], "own");
	EXPECT(&a, "ok", "alloc %llu", LIMIT);
	EXPECT(&a, "ok", "bare");
	EXPECT(&b, "2", "alloc 1");
	kill_process(&a);
	CHECK(container_has_orphan(&box[0]));
	CHECK_EQ(card_used(), 0);
	EXPECT(&b, "67108864 67108864", "info");
	expect_whole_limit(&b);
	kill_process(&b);
	end_claim();
}

TEST("a checkpoint of a process gives back its own memory, and not that of the same PID elsewhere")
{
	if (!share_claim(2))
		return done();
	struct process a = start_process(&box[0], "own"), b = start_process(&box[1], "own");
	struct process helper = start_process(&box[0], "own");
	int pid = atoi(send_command(&a, "pid"));
	CHECK_EQ(atoi(send_command(&b, "pid")), pid);
	EXPECT(&a, "ok", "alloc %llu", 16ULL << 20);
	EXPECT(&b, "ok", "alloc %llu", 32ULL << 20);
	EXPECT(&helper, "ok", "suspend %d", pid);
	CHECK_EQ(card_used(), 32ULL << 20);
	EXPECT(&helper, "33554432 67108864", "info");
	EXPECT(&b, "33554432 67108864", "info");
	EXPECT(&helper, "2", "alloc %llu", 34ULL << 20);
	EXPECT(&helper, "ok", "alloc %llu", 32ULL << 20);
	EXPECT(&helper, "2", "resume %d", pid);
	EXPECT(&helper, "ok", "free");
	EXPECT(&helper, "ok", "resume %d", pid);
	EXPECT(&b, "16777216 67108864", "info");
	CHECK_EQ(card_used(), 48ULL << 20);
	kill_process(&a);
	kill_process(&b);
	kill_process(&helper);
	end_claim();
}

TEST("NVML lists a container's own processes, with their own memory, whatever the driver lists")
{
	static const char *const lists[] = {"own", "host", "zero", "none"};
	char want[64];
	if (!share_claim(2))
		return done();
	for (int i = 0; i < 4; i++) {
		struct process a = start_process(&box[0], lists[i]), b = start_process(&box[1], lists[i]);
		int pid = atoi(send_command(&a, "pid"));
		CHECK_EQ(atoi(send_command(&b, "pid")), pid);
		EXPECT(&a, "ok", "alloc %llu", 8ULL << 20);
		EXPECT(&b, "ok", "alloc %llu", 16ULL << 20);
		snprintf(want, sizeof want, "%d:8388608", pid);
		EXPECT(&a, want, "list");
		snprintf(want, sizeof want, "%d:16777216", pid);
		EXPECT(&b, want, "list");
		EXPECT(&a, "41943040 67108864 25165824", "nvml");
		EXPECT(&b, "41943040 67108864 25165824", "nvml");
		kill_process(&a);
		kill_process(&b);
	}
	end_claim();
}

/*
 * A driver that names processes by host PIDs may list one of the host under this process's number.
 * That the number has memory in another container does not make it this process's.
 */
TEST("a process of the host with the container's PID is not believed to be the namesake elsewhere")
{
	static const char *const host[] = {"FAKEGPU_CONTEXT", "4", "FAKEGPU_NVML_NAMESAKE", "300"};
	if (!share_claim(2))
		return done();
	setenv(host[0], host[1], 1);
	struct process b = start_process(&box[1], "own");
	EXPECT(&b, "ok", "alloc %llu", 10ULL << 20);
	setenv(host[2], host[3], 1);
	struct process a = start_process(&box[0], "host");
	CHECK_EQ(atoi(send_command(&a, "pid")), 2);
	CHECK_EQ(atoi(send_command(&b, "pid")), 2);
	CHECK_EQ(card_used(), 18ULL << 20);
	usleep(150000); /* code is looked for every 10 ms while a context is young */
	for (int i = 0; i < 2; i++)
		EXPECT(i ? &a : &b, "48234496 67108864", "info");
	EXPECT(&a, "ok", "alloc %llu", 46ULL << 20);
	EXPECT(&b, "2", "alloc 1");
	kill_process(&a);
	kill_process(&b);
	end_claim();
}

TEST_MAIN
