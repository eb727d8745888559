/* SPDX-License-Identifier: Apache-2.0 */
/*
 * borrow_test.c: containers that use what their neighbours leave idle, under the library on the
 * fake driver's clock.
 */
#include "tenants.h"

#include <time.h>

static struct tenant t[TENANTS];

static void expect(const char *what, double got, double least, double most)
{
	printf("    %-60s %6.1f   (%g to %g)\n", what, got, least, most);
	CHECK(got >= least && got <= most + 0.01); /* moments are read to a microsecond */
}

TEST("a tenant at 30 % that is alone gets the device")
{
	machine();
	t[0] = (struct tenant){.percent = 30, .work = "200 0 3", .borrows = 1};
	run_tenants(t, 1);
	expect("alone", share(&t[0], 1, 3), 95, 100);
	done();
}

TEST("one that is idle lends; when it starts, both have their own within 0.5 s; when it stops, it "
     "lends again")
{
	machine();
	t[0] = (struct tenant){.percent = 30, .work = "200 0 6", .borrows = 1};
	t[1] = (struct tenant){.percent = 70, .work = "1400 0 6 2000 4000", .borrows = 1};
	run_tenants(t, 2);
	expect("30 % while the other is idle", share(&t[0], 1, 2), 95, 100);
	expect("30 %, from 0.5 s after the other began", share(&t[0], 2.5, 4), 28, 32);
	expect("70 % then", share(&t[1], 2.5, 4), 68, 72);
	expect("70 % in its first half second", share(&t[1], 2, 2.5), 50, 80);
	expect("30 %, from 0.5 s after the other stopped", share(&t[0], 4.5, 6), 95, 100);
	done();
}

TEST("what nobody is guaranteed goes to the wanting by their guarantees")
{
	machine();
	t[0] = (struct tenant){.percent = 20, .work = "200 0 5", .borrows = 1};
	t[1] = (struct tenant){.percent = 40, .work = "200 0 5", .borrows = 1};
	t[2] = (struct tenant){.percent = 40, .work = "200 0 5 0 0", .borrows = 1};
	run_tenants(t, 3);
	expect("20 % of 60 wanted", share(&t[0], 2, 5), 31, 35);
	expect("40 % of 60 wanted", share(&t[1], 2, 5), 64, 68);
	done();
}

TEST("policy force never borrows, and is lent from all the same")
{
	machine();
	t[0] = (struct tenant){.percent = 30, .work = "200 0 4", .borrows = 1, .policy = "force"};
	t[1] = (struct tenant){.percent = 70, .work = "200 0 4 0 2000", .borrows = 1};
	run_tenants(t, 2);
	expect("forced, beside one that works", share(&t[0], 1, 2), 28, 32);
	expect("that one", share(&t[1], 1, 2), 68, 72);
	expect("forced, beside one that is idle", share(&t[0], 3, 4), 28, 32);
	done();
}

TEST("without the word in the limits file nobody borrows, and nobody lends to a container without "
     "its files")
{
	machine();
	t[0] = (struct tenant){.percent = 30, .work = "200 0 3"};
	run_tenants(t, 1);
	expect("alone without files", share(&t[0], 1, 3), 28, 32);
	done();
}

TEST("priority 0 borrows before priority 1, and neither loses its own")
{
	machine();
	t[0] = (struct tenant){
		.percent = 20, .work = "200 0 6 0 4000", .borrows = 1, .priority = 0};
	t[1] = (struct tenant){.percent = 30, .work = "200 0 6", .borrows = 1, .priority = 1};
	run_tenants(t, 2);
	expect("priority 0, at 20 %", share(&t[0], 1, 4), 66, 71);
	expect("priority 1, at 30 %", share(&t[1], 1, 4), 28, 32);
	expect("priority 1, when the other has stopped", share(&t[1], 5, 6), 95, 100);
	done();
}

/* A container's file while others run: `text` again and again would be the same. */
static void spoil(const char *file, const char *text, size_t length)
{
	char path[256];
	snprintf(path, sizeof path, "%s/neighbours/%s", dir, file);
	FILE *f = fopen(path, "w");
	fwrite(text, 1, length, f);
	fclose(f);
}

TEST("whatever a neighbour's files hold, nobody has less than its own or more than the device")
{
	static char noise[4096];
	static const struct {
		const char *name, *file;
		size_t length;
	} table[] = {
		{"a neighbour's demand of noise", "9.demand", 256},
		{"one that is too long", "9.demand", 4096},
		{"one that is too short", "9.demand", 7},
		{"an empty one", "9.demand", 0},
		{"a neighbour's share of noise", "9.share", 4096},
		{"an empty one", "9.share", 0},
		{"a neighbour without a demand file", "8.share", 0},
	};
	for (size_t i = 0; i < sizeof noise; i++)
		noise[i] = (char)(i * 2654435761u >> 7);
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		machine();
		spoil("9.share", "vgpu-limits 1\ndevice 0 " UUID " memory=0 cores=40\n", 14 + 67);
		spoil(table[i].file, noise, table[i].length);
		t[0] = (struct tenant){.percent = 30, .work = "200 0 3", .borrows = 1};
		run_tenants(t, 1);
		expect(table[i].name, share(&t[0], 1, 3), 28, 100);
		done();
	}
}

TEST("beside one that hides its demand the others keep their own, since they say when they lack")
{
	static const char *const works[] = {"200 0 6", "1400 0 6", "20 0 6", "15 400 6"};
	for (int i = 0; i < 4; i++) {
		machine();
		t[0] = (struct tenant){.percent = 30, .work = "200 0 6", .borrows = 1};
		t[1] = (struct tenant){.percent = 40, .work = works[i], .borrows = 1};
		t[2] = (struct tenant){.percent = 30, .work = "200 0 6", .borrows = 1, .hides = 1};
		run_tenants(t, 3);
		expect(works[i], share(&t[1], 1, 6), 37.5, 46);
		expect("  beside 30 %", share(&t[0], 1, 6), 28, 40);
		expect("  and 30 % that hides", share(&t[2], 1, 6), 20, 32);
		done();
	}
}

TEST("a lease on a neighbour's file delays nobody")
{
	static const char *const files[] = {"9.share", "9.demand"};
	char path[256];
	for (int i = 0; i < 2; i++) {
		machine();
		spoil("9.share", "vgpu-limits 1\ndevice 0 " UUID " memory=0 cores=40\n", 14 + 67);
		spoil("9.demand", "", 0);
		snprintf(path, sizeof path, "%s/neighbours/%s", dir, files[i]);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		signal(SIGIO, SIG_IGN);
		CHECK(fd >= 0 && !fcntl(fd, F_SETLEASE, F_WRLCK));
		time_t before = time(NULL);
		t[0] = (struct tenant){.percent = 30, .work = "200 0 3", .borrows = 1};
		run_tenants(t, 1);
		expect(files[i], share(&t[0], 1, 3), 28, 100);
		CHECK(time(NULL) - before < 20); /* a lease is broken after 45 s */
		close(fd);
		done();
	}
}

TEST("a lease on a container's own file does not silence it")
{
	machine();
	t[0] = (struct tenant){.percent = 30, .work = "1400 0 6", .borrows = 1};
	t[1] = (struct tenant){.percent = 60, .work = "200 0 6", .borrows = 1};
	t[2] = (struct tenant){.percent = 10, .work = "lease 1 6", .borrows = 1};
	run_tenants(t, 3);
	expect("60 % whose file a neighbour wants a lease on", share(&t[1], 1, 6), 58, 72);
	expect("30 % beside it", share(&t[0], 1, 6), 28, 42);
	done();
}

TEST_MAIN
