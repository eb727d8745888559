/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mixtures_test.c: programs whose kernels vary, that end and come again, or wait in every way there
 * is, under the library on the fake driver's clock. What the device has done for a container is
 * read from the fake itself. VGPU_MIXTURES=<n> runs so many random mixtures for 61 s each and
 * prints how far their shares are off; VGPU_MIXTURE=<n> runs only that one.
 */
#define TEST_SECONDS 86400
#include "tenants.h"

#include "blocks_model.h"

static struct tenant t[TENANTS];

/* A container alone at 30 %; its processes do the same, drawn by seeds of their own. */
static double share_alone(const char *words, int processes, int blocking)
{
	machine();
	t[0] = (struct tenant){.percent = 30, .work = "", .processes = processes};
	for (int k = 0; k < processes; k++) {
		snprintf(t[0].mixtures[k], sizeof t[0].mixtures[k], "%d %s", k + 1, words);
		t[0].blocking[k] = blocking;
	}
	run_tenants(t, 1);
	done();
	return share(&t[0], 1, 6);
}

static void expect_alone(const char *words, int processes, int blocking, double least, double most)
{
	double got = share_alone(words, processes, blocking);
	printf("    %-60s %5.1f   (%g to %g)\n", words, got, least, most);
	CHECK(got > least && got < most);
}

TEST("kernels that seldom take long get 30 % and no more")
{
	expect_alone("20*9,5000 6", 1, 0, 28, 32);
	expect_alone("20*9,500 6", 1, 0, 28, 32);
	expect_alone("100*3,1000 6", 1, 0, 28, 32);
	expect_alone("100*3,1000 6 streams=4", 1, 0, 28, 32);
	expect_alone("20 6 later=2000:500", 1, 0, 28, 32);
	expect_alone("20*9,5000 6", 4, 0, 27, 33);
	expect_alone("20*9,5000 6 sync=3", 1, 0, 28, 32);
	expect_alone("20*199,5000 6 sync=1", 1, 0, 28, 32);
	expect_alone("20*9,500 6 sync=5 wait=poll rest=500", 1, 0, 28, 32);
	expect_alone("20*9,500 6 graph=10", 1, 0, 28, 32);
}

/* Launches of near sizes are taken to cost the same, until they are known themselves. */
TEST("kernels whose sizes never repeat get 30 % and no more, however much each takes")
{
	expect_alone("20 6 sizes=1000000", 1, 0, 28, 32);
	expect_alone("20 6 sizes=4096 grows=1", 1, 0, 28, 32);
	expect_alone("300 6 sizes=100000 grows=1 streams=4", 1, 0, 28, 32);
	expect_alone("20*9,5000 6 sizes=1000000", 1, 0, 28, 32);
	expect_alone("20*9,5000 6 sizes=1000000 own=1", 1, 0, 28, 32);
	expect_alone("20*9,500 6 sizes=1000000 sync=5 wait=poll", 1, 0, 28, 32);
	expect_alone("20 6 sizes=1000000 later=2000:500", 1, 0, 28, 32);
	expect_alone("20*99,20000 6 sizes=1000000", 3, 0, 27, 33);
}

TEST("launches that wait for their work get 30 %")
{
	expect_alone("200 6", 1, 1, 28, 32);
	expect_alone("20*9,5000 6", 1, 1, 28, 32);
	expect_alone("5000 6", 1, 1, 28, 32);
}

TEST("processes and contexts of a kernel or two pay for them, however they end")
{
	expect_alone("50000 6 life=5 sync=1 wait=poll", 1, 0, 28, 32);
	expect_alone("50000 6 life=5 sync=1 wait=poll end=now", 1, 0, 28, 32);
	expect_alone("50000 6 life=5", 1, 0, 28, 32);
	expect_alone("20 6 life=20 end=now", 1, 0, 24, 32);
	expect_alone("20000 6 context=5", 1, 0, 28, 32);
	expect_alone("2000 6 context=50 streams=3", 1, 0, 28, 32);
	/* never measured: what it is charged is a guess that doubles, so it gets less */
	expect_alone("50000 6 life=5 end=now", 1, 0, 5, 32);
}

static uint64_t state;

static unsigned draw(unsigned below)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)((state >> 33) % below);
}

/* One of several, drawn. */
#define ONE_OF(...)                                                                                \
	((const char *const[]){__VA_ARGS__}[draw(sizeof((const char *const[]){__VA_ARGS__}) /      \
						 sizeof(char *))])

/*
 * What a process does. Programs that leave the device idle on their own are not among them, nor
 * such of which nothing is ever known: sizes that never repeat in lives too short for near ones.
 */
static void draw_work(char *out, size_t size, int seconds)
{
	const char *costs = ONE_OF("20", "200", "1400", "8000", "20*9,5000", "20*9,500", "100*3,1000",
				   "50*99,20000", "300*4,3000", "1000,2000,4000");
	const char *shape = ONE_OF("", "", "streams=2", "streams=4", "own=1", "graph=8");
	const char *wait = ONE_OF("", "", "", "sync=400", "sync=400 wait=poll");
	const char *end = ONE_OF("", "", "", "", "life=200", "life=200 end=now", "context=300");
	const char *sizes = *end ? "" : ONE_OF("", "", "sizes=100000", "sizes=5000 grows=1");
	snprintf(out, size, "%u %s %d %s %s %s %s", draw(1000000), costs, seconds, shape, wait, end,
		 sizes);
}

/*
 * The n-th mixture: 1 to 4 containers of 1 to 3 processes, 8 in all, alone or sharing the whole
 * device, with files by which they lend and take turns where they are several.
 */
static int draw_mixture(unsigned n, int seconds)
{
	static const unsigned splits[][TENANTS] = {{30}, {10, 90}, {20, 80}, {30, 70}, {50, 50},
						   {20, 30, 50}, {10, 30, 60}, {10, 20, 30, 40}};
	state = n * 0x9e3779b97f4a7c15ULL + 1;
	draw(2);
	const unsigned *split = splits[draw(sizeof splits / sizeof *splits)];
	int count = 0, left = 8;
	for (; count < TENANTS && split[count]; count++) {
		int most = left - (TENANTS - count) < 3 ? left - (TENANTS - count) : 3;
		t[count] = (struct tenant){.percent = split[count], .work = ""};
		t[count].processes = 1 + (int)draw((unsigned)(most > 0 ? most : 1));
		left -= t[count].processes;
		for (int k = 0; k < t[count].processes; k++)
			draw_work(t[count].mixtures[k], sizeof t[count].mixtures[k], seconds);
	}
	for (int i = 0; i < count; i++)
		t[i].borrows = count > 1;
	return count;
}

static struct {
	double sum, worst, worst60;
	int count;
} errors;

/* The largest error of a container in any window of so many seconds. */
static double window_error(const struct tenant *a, int length, int seconds)
{
	double most = 0;
	for (int from = 1; from + length <= seconds; from++) {
		double off = share(a, from, from + length) - a->percent;
		most = off * off > most * most ? off : most;
	}
	return most;
}

static void run_mixture(unsigned n, int seconds)
{
	int count = draw_mixture(n, seconds);
	machine();
	run_tenants(t, count);
	done();
	for (int i = 0; i < count; i++) {
		double mean = share(&t[i], 1, seconds) - t[i].percent,
		       off = window_error(&t[i], 10, seconds);
		printf("    %4u %3u %6.2f %6.2f", n, t[i].percent, mean, off);
		for (int k = 0; k < t[i].processes; k++)
			printf("  %s", strchr(t[i].mixtures[k], ' ') + 1);
		printf("\n");
		fflush(stdout);
		errors.sum += mean < 0 ? -mean : mean;
		errors.count++;
		errors.worst = off * off > errors.worst * errors.worst ? off : errors.worst;
		errors.worst60 = mean * mean > errors.worst60 * errors.worst60 ? mean : errors.worst60;
		CHECK(off < 3);
		CHECK(off > -5); /* what changes between containers take, and who waits */
	}
}

TEST("random mixtures of kernels, streams, graphs, waits, processes and contexts get their shares")
{
	const char *only = getenv("VGPU_MIXTURE"), *number = getenv("VGPU_MIXTURES");
	int count = number ? atoi(number) : 0, seconds = 61;
	if (!count) {
		printf("    not run: they take hours; make mixtures\n");
		return;
	}
	printf("    %4s %3s %6s %6s\n", "", "of", "all", "10 s");
	for (int n = 0; n < count; n++)
		if (!only || atoi(only) == n)
			run_mixture((unsigned)n, seconds);
	printf("    %d containers: mean absolute error %.2f, worst %.2f, worst in 10 s %.2f points\n",
	       errors.count, errors.sum / errors.count, errors.worst60, errors.worst);
}

TEST("two containers divide the device as they are asked to, beside a count of blocks")
{
	static const unsigned splits[][2] = {{10, 90}, {20, 80}, {30, 70}, {50, 50}};
	static const struct workload model = {2048, 1400000, 0};
	printf("    %8s %16s %18s\n", "asked", "got", "HAMi-core (model)");
	for (int i = 0; i < 4; i++) {
		double blocks[2], got[2];
		struct blocks_tenant b[2] = {{model, splits[i][0]}, {model, splits[i][1]}};
		blocks_run(b, 2, 6, blocks);
		machine();
		for (int k = 0; k < 2; k++)
			t[k] = (struct tenant){
				.percent = splits[i][k], .work = "1400 0 5", .borrows = 1};
		run_tenants(t, 2);
		done();
		for (int k = 0; k < 2; k++)
			got[k] = share(&t[k], 1, 5);
		printf("    %3u : %2u %8.1f : %4.1f %9.1f : %4.1f\n", splits[i][0], splits[i][1],
		       got[0], got[1], blocks[0], blocks[1]);
		for (int k = 0; k < 2; k++)
			CHECK(got[k] > splits[i][k] - 2 && got[k] < splits[i][k] + 2);
	}
}

TEST_MAIN
