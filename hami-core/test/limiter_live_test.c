/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limiter_live_test.c: the compute limit where threads and processes really run at once, in real
 * time. A machine that has other things to do takes from every share and delays everything: the
 * bounds here tell held from not held, and no more; how exactly a share is held is asserted on the
 * fake's clock (limiter_test.c, stalls_test.c, shares_test.c).
 */
#include "limited.h"

TEST("two processes of a container share one limit")
{
	machine(30, "force");
	expect_share("busy 2 1", 0.02, 0.4);
	expect_share("fork 2 busy 2 1", 0.02, 0.4); /* 0.6 if each had one */
	done();
}

TEST("two containers at 30 and 70 that take turns hold each other up no more than that")
{
	int a = 0, b = 0;
	machine(30, "default");
	container("other", 70, "default");
	among_neighbours("limits", 30);
	among_neighbours("other", 70);
	pid_t one = client("limits", 0, "busy 2 0.5", &a),
	      two = client("other", 0, "busy 2 0.5", &b);
	CHECK_EQ(finish(one, a), 0);
	double first = reported("fraction="); /* one alone borrows: no upper bound */
	CHECK_EQ(finish(two, b), 0);
	double second = reported("fraction=");
	printf("    two containers: %.3f and %.3f\n", first, second);
	CHECK(first > 0.02 && second > 0.02);
	done();
}

TEST("alone among neighbours a container has the device, with several processes, too")
{
	machine(10, "default");
	among_neighbours("limits", 10);
	neighbour("other", 90);
	expect_share("fork 2 busy 1 1", 0.2, 2); /* they may start one after the other */
	done();
}

/* Seconds that a program needs for a launch while the monitor holds it for 0.3 s. */
static double held(void)
{
	struct timespec a, b;
	int fd;
	struct vgpu_region *m = map_region();
	m->hami.recent_kernel = -1;
	m->hami.last_kernel_time = 0;
	clock_gettime(CLOCK_MONOTONIC, &a);
	pid_t pid = client("limits", 0, "launch 1", &fd);
	usleep(300000);
	CHECK_EQ(m->hami.recent_kernel, -1);
	CHECK_EQ(m->hami.last_kernel_time, 0);
	m->hami.recent_kernel = 0;
	CHECK_EQ(finish(pid, fd), 0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	CHECK_EQ(m->hami.recent_kernel, 2);
	CHECK(m->hami.last_kernel_time + 5 > (uint64_t)time(NULL));
	return (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
}

TEST("a monitor's gate holds launches, limited or not, and launches stamp the region")
{
	machine(30, "default");
	busy("launch 1");
	CHECK(held() >= 0.3);
	container("limits", 0, "default");
	CHECK(held() >= 0.3);
	done();
}

TEST("a capture stays whole, and what it recorded is not charged until it runs")
{
	machine(20, "force");
	CHECK_EQ(probe("limits", "capture"), 0);
	done();
}

TEST("threads and forks leave the limiter sound")
{
	machine(50, "force");
	among_neighbours("limits", 50);
	CHECK_EQ(probe("limits", "threads"), 0);
	CHECK_EQ(probe("limits", "new-in-threads"), 0);
	CHECK_EQ(probe("limits", "forked"), 0);
	done();
}

TEST("a device that takes nothing more holds up no launch on another")
{
	two_devices(50, 50);
	CHECK_EQ(probe("limits", "once"), 0);
	map_region()->hami.utilization_switch = 0;
	CHECK_EQ(probe("limits", "blocked"), 0);
	done();
}

TEST_MAIN
