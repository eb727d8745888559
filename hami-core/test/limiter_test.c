/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limiter_test.c: programs that want all of a device's time, in containers with a share of it, on
 * the fake driver's clock: the same every time. What needs threads and processes that really run at
 * once is in limiter_live_test.c, workloads in shares_test.c.
 */
#define PLACES 1
#include "limited.h"

TEST("a process at 30 % gets no more than 32, whatever the length of its kernels")
{
	machine(30, "default");
	expect_share("busy 2 0.02", 0.28, 0.32);
	expect_share("busy 2 1.4", 0.28, 0.32);
	expect_share("busy 3 20", 0.28, 0.33); /* a kernel is 0.7 % of that time */
	done();
}

TEST("a pause is not paid for when a kernel that is new follows it")
{
	machine(30, "default");
	/* the two fractions' sum; 0.37 if it is */
	expect_share("busy 1 1 sleep 2 busy 1 0.7", 0.55, 0.75);
	done();
}

/*
 * The shares of two programs that start together; once on a machine, because the clock does not
 * wait for a second pair.
 */
static void together(const char *one, const char *other, const char *steps, double *first,
		     double *second)
{
	int a = 0, b = 0;
	on_clock(2);
	pid_t p = client(one, 0, steps, &a), q = client(other, 1, steps, &b);
	CHECK_EQ(finish(p, a), 0);
	*first = reported("middle=");
	CHECK_EQ(finish(q, b), 0);
	*second = reported("middle=");
	printf("    %s, both: %.3f and %.3f\n", steps, *first, *second);
}

TEST("processes of a container share one limit")
{
	static const char *const steps[] = {"busy 3 0.02", "busy 3 0.5", "busy 3 1.4", "busy 6 20"};
	for (int i = 0; i < 4; i++) {
		double first, second;
		machine(30, "force");
		together("limits", "limits", steps[i], &first, &second);
		CHECK(first + second > 0.28 && first + second < 0.32);
		CHECK(first > 0.1 && second > 0.1);
		done();
	}
}

static void two_containers(int neighbours)
{
	double first, second;
	machine(30, "default");
	container("other", 70, "default");
	if (neighbours) {
		among_neighbours("limits", 30);
		among_neighbours("other", 70);
	}
	together("limits", "other", "busy 3 0.5", &first, &second);
	CHECK(first > 0.28 && first < 0.32 && second > 0.68 && second < 0.72);
	done();
}

TEST("two containers at 30 and 70 get that")
{
	two_containers(0);
}

TEST("two neighbours at 30 and 70 get that, taking turns")
{
	two_containers(1);
}

TEST("policy disable and no share limit nothing; no memory limit is needed for a share")
{
	machine(30, "disable");
	expect_share("busy 0.5 1", 0.98, 1);
	container("limits", 0, "default");
	expect_share("busy 0.5 1", 0.98, 1);
	container("limits", 100, "force");
	expect_share("busy 0.5 1", 0.98, 1);
	done();
}

TEST("alone among neighbours a container has the device, whatever it may")
{
	machine(30, "default");
	among_neighbours("limits", 30);
	neighbour("other", 70);
	expect_share("busy 1 1", 0.95, 1);
	done();
}

TEST("a monitor's switch suspends the share, but not where it is forced")
{
	machine(30, "default");
	CHECK_EQ(busy("launch 1") > 0, 0);
	struct vgpu_region *m = map_region();
	CHECK_EQ(m->hami.utilization_switch, 1);
	m->hami.utilization_switch = 0;
	expect_share("busy 0.5 1", 0.98, 1);
	container("limits", 30, "force");
	expect_share("busy 2 1", 0.28, 0.32);
	done();
}

TEST("nobody's switch suspends the share of a container that borrows by itself")
{
	machine(30, "default");
	among_neighbours("limits", 30);
	neighbour("other", 70);
	CHECK_EQ(busy("launch 1") > 0, 0);
	write_file("other.share", "not to be read"); /* then nothing is borrowed */
	map_region()->hami.utilization_switch = 0;
	expect_share("busy 2 1", 0.28, 0.32);
	done();
}

TEST("a balance or a clock that somebody has written into the region costs seconds, and gives "
     "nothing")
{
	static const struct vgpu_pace written[] = {
		{INT64_MAX, 1, 0, 0},
		{0, UINT64_MAX, UINT64_MAX, UINT64_MAX},
		{1LL << 62, UINT64_MAX / 2, 1, UINT64_MAX},
		{INT64_MIN, 0, 0, 0},
		{-(1LL << 62), UINT64_MAX, 0, 0},
	};
	for (int i = 0; i < 5; i++) {
		machine(50, "force");
		CHECK_EQ(busy("launch 1") > 0, 0);
		struct vgpu_region *m = map_region();
		m->ext.pace[0] = written[i];
		if (i < 3)
			expect_share("busy 4 1", 0.46, 0.54);
		else /* a debt of 10 s, paid in 20 */
			expect_share("busy 30 1", 0.15, 0.19);
		CHECK(llabs(m->ext.pace[0].balance_ns) < 1000000000LL);
		done();
	}
}

/* Words as somebody may write them: nonsense, extremes, and moments and times that look right. */
static uint64_t hostile(unsigned *seed, uint64_t now)
{
	uint64_t random = 0;
	for (int i = 0; i < 4; i++) {
		*seed = *seed * 1664525u + 1013904223u;
		random = random << 16 | *seed >> 16;
	}
	switch (*seed >> 8 & 7) {
	case 0: return 0;
	case 1: return UINT64_MAX;
	case 2: return 1ULL << 63;
	case 3: return (1ULL << 63) - 1;
	case 4: return now + random % 2000000000 - 1000000000;
	case 5: return random % 10000000000;
	default: return random;
	}
}

static void scribble(struct vgpu_region *m, unsigned *seed, uint64_t now)
{
	uint64_t *word = (uint64_t *)&m->ext.common[0];
	for (size_t i = 0; i < sizeof m->ext.common[0] / sizeof *word; i++)
		__atomic_store_n(&word[i], hostile(seed, now), __ATOMIC_RELAXED);
	for (int i = 0; i < VGPU_NEIGHBOURS; i++) /* so that other words of it are read */
		if (*seed >> (8 + i % 16) & 1)
			m->ext.common[0].patience[i].who = 0;
	word = (uint64_t *)&m->ext.turn[0];
	for (size_t i = 0; i < sizeof m->ext.turn[0] / sizeof *word; i++)
		__atomic_store_n(&word[i], hostile(seed, now), __ATOMIC_RELAXED);
}

TEST("whatever somebody writes into what processes know in common costs a second, and gives "
     "nothing")
{
	unsigned seed = 1;
	for (int i = 0; i < (test_is_short() ? 8 : 40); i++) {
		double first, second;
		machine(50, "default");
		container("other", 50, "default");
		among_neighbours("limits", 50);
		among_neighbours("other", 50);
		on_clock(0);
		CHECK_EQ(busy("launch 1") > 0, 0);
		scribble(map_region(), &seed, 1000000000000ULL); /* the clock starts there */
		together("limits", "other", "busy 4 1", &first, &second);
		CHECK(first > 0.46 && first < 0.54 && second > 0.46 && second < 0.54);
		on_clock(1);
		done();
	}
}

TEST("a program launches on while somebody writes nonsense there all the time")
{
	unsigned seed = 2;
	int fd, status;
	machine(50, "force");
	among_neighbours("limits", 50);
	neighbour("other", 50);
	CHECK_EQ(busy("launch 1") > 0, 0);
	struct vgpu_region *m = map_region();
	pid_t pid = client("limits", 0, "busy 20 1", &fd);
	while (!waitpid(pid, &status, WNOHANG)) {
		scribble(m, &seed, __atomic_load_n(&m->ext.pace[0].refilled_ns, __ATOMIC_RELAXED));
		usleep(100);
	}
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	finish(pid, fd);
	printf("    at 50 %%: %.3f\n", reported("fraction="));
	CHECK(reported("fraction=") > 0.1);
	done();
}

TEST("limits that cannot be read for a while are held as soon as they can")
{
	machine(20, "force");
	CHECK_EQ(probe("limits", "leased"), 0);
	done();
}

TEST("every way to start work counts, graphs and per-thread twins included")
{
	machine(20, "force");
	CHECK_EQ(probe("limits", "ways"), 0);
	done();
}

TEST("streams that run side by side count once, and contexts that go leave the limiter sound")
{
	machine(50, "force");
	among_neighbours("limits", 50);
	CHECK_EQ(probe("limits", "streams"), 0);
	CHECK_EQ(probe("limits", "contexts"), 0);
	done();
}

TEST("threads whose batches overlap have one share")
{
	machine(50, "force");
	CHECK_EQ(probe("limits", "interleaved"), 0);
	setenv("FAKEGPU_STALL", "100/1000", 1);
	CHECK_EQ(probe("limits", "interleaved"), 0);
	done();
}

TEST("a thread that goes between devices is held on the one that has a limit, and there alone")
{
	two_devices(20, 0);
	CHECK_EQ(probe("limits", "devices"), 0);
	done();
}

TEST("work goes to the device of its stream, whatever context is current, or none")
{
	two_devices(20, 0);
	CHECK_EQ(probe("limits", "strangers"), 0);
	done();
}

TEST("launches on several devices at once give their events back")
{
	two_devices(50, 50);
	CHECK_EQ(probe("limits", "together"), 0);
	done();
}

TEST("a thread that ends pays for what it has launched, and gives its events back")
{
	machine(20, "force");
	CHECK_EQ(probe("limits", "requests"), 0);
	done();
}

TEST("a context that goes leaves what others have launched to be paid")
{
	machine(20, "force");
	CHECK_EQ(probe("limits", "bystanders"), 0);
	done();
}

TEST("a context that goes has paid for its work, waited for or not")
{
	machine(20, "force");
	CHECK_EQ(probe("limits", "departures"), 0);
	done();
}

TEST("a process that ends leaves its debt to the next one of the container")
{
	machine(20, "force");
	CHECK_EQ(probe("limits", "once"), 0);
	double began = reported("at=");
	for (int i = 0; i < 6; i++) /* 60 ms each, the last one's still to be paid */
		CHECK_EQ(probe("limits", "once"), 0);
	double took = reported("at=") - began;
	printf("    six processes of 60 ms: %.3f s\n", took);
	CHECK(took > 1.7 && took < 1.9);
	done();
}

TEST("loading code is no work of the device, but a launch that waits for its work is")
{
	machine(10, "force");
	setenv("FAKEGPU_LOAD_MS", "300", 1);
	CHECK_EQ(probe("limits", "loading"), 0);
	unsetenv("FAKEGPU_LOAD_MS");
	container("limits", 20, "force");
	setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
	CHECK_EQ(probe("limits", "blocking"), 0);
	done();
}

TEST_MAIN
