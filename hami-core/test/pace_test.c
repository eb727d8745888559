/* SPDX-License-Identifier: Apache-2.0 */
/* pace_test.c: the arithmetic of the compute limit. The workloads are in shares_test.c. */
#include "testing.h"

#include "model/pace.h"

#define MS 1000000LL

TEST("the balance grows by the share of the time that passes")
{
	CHECK_EQ(pace_refill(0, 10 * MS, 30), 3 * MS);
	CHECK_EQ(pace_refill(0, 10 * MS, 1), MS / 10);
	CHECK_EQ(pace_refill(-5 * MS, 10 * MS, 30), -2 * MS);
	CHECK_EQ(pace_refill(7, 0, 30), 7);
}

TEST("what is not used for a window is lost, a debt is kept")
{
	CHECK_EQ(pace_refill(0, 3600000 * MS, 30), 30 * MS);
	CHECK_EQ(pace_refill(29 * MS, 100 * MS, 30), 30 * MS);
	CHECK_EQ(pace_refill(99 * MS, 1, 30), 30 * MS); /* a share was lowered */
	CHECK_EQ(pace_refill(-1000 * MS, 100 * MS, 50), -950 * MS);
	CHECK_EQ(pace_refill(INT64_MIN / 2, 1000 * MS, 50), INT64_MIN / 2 + 500 * MS);
	CHECK_EQ(pace_refill(0, UINT64_MAX, 100), 100 * MS);
}

TEST("a debt is waited for until the share has paid it")
{
	CHECK_EQ(pace_wait(0, 30), 0);
	CHECK_EQ(pace_wait(5, 30), 0);
	CHECK_EQ(pace_wait(-3 * MS, 30), 10 * MS);
	CHECK_EQ(pace_wait(-1, 100), 1);
	CHECK(pace_wait(INT64_MIN / 2, 1) > 1000000 * (uint64_t)MS);
	for (unsigned percent = 1; percent <= 100; percent++)
		CHECK(pace_refill(-777777, pace_wait(-777777, percent), percent) >= 0);
}

TEST("no more than 4 ms are queued, but one kernel may always follow another")
{
	CHECK_EQ(pace_queue_wait(4 * MS, 9), 0);
	CHECK_EQ(pace_queue_wait(500 * MS, 1), 0);
	CHECK(pace_queue_wait(5 * MS, 2) == MS && pace_queue_wait(4 * MS + 1, 3) == MS / 10);
}

TEST("a container borrows what nobody who wants to work is guaranteed")
{
	static const struct {
		const char *why;
		unsigned percent;
		int priority;
		struct pace_claim other[2];
		unsigned want;
	} table[] = {
		{"all are idle", 30, 1, {{70, 1, 0, 0}}, 100},
		{"the other works", 30, 1, {{70, 1, 1, 0}}, 30},
		{"60 are free for 10 and 30", 10, 1, {{30, 1, 1, 0}}, 25},
		{"a lower priority works: it keeps its own", 20, 0, {{30, 1, 1, 0}}, 70},
		{"a higher one does", 30, 1, {{20, 0, 1, 0}}, 30},
		{"a higher one is idle", 30, 1, {{20, 0, 0, 0}}, 100},
		{"somebody lacks", 30, 1, {{20, 1, 0, 0}, {20, 1, 0, 1}}, 30},
		{"more is promised than there is", 60, 1, {{60, 1, 1, 0}, {60, 1, 1, 0}}, 60},
		{"everybody has nothing", 1, 1, {{0, 1, 1, 0}, {0, 1, 1, 0}}, 100},
		{"all of it", 100, 1, {{0, 1, 0, 0}}, 100},
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		unsigned got = pace_rate(table[i].percent, table[i].priority, table[i].other, 2);
		if (got != table[i].want)
			printf("    %s\n", table[i].why);
		CHECK_EQ(got, table[i].want);
	}
}

TEST("whatever the claims, a rate is no less than the guarantee and no more than the device")
{
	uint32_t seed = 7;
	for (int i = 0; i < 100000; i++) {
		struct pace_claim c[4];
		for (int k = 0; k < 4; k++) {
			unsigned r = (unsigned)pace_batch_size(&seed);
			c[k] = (struct pace_claim){r % 7 ? r % 101 : r * 2654435761u,
						   (int)(r / 3 % 5) - 1, r / 101 & 1,
						   !(r / 11 % 16)};
		}
		unsigned percent = 1 + (unsigned)pace_batch_size(&seed) % 100,
			 rate = pace_rate(percent, 1, c, 4);
		CHECK(rate >= percent && rate <= 100);
	}
}

TEST("batches have a quarter to seven quarters of a millisecond, and one in the mean")
{
	uint32_t seed = 1;
	uint64_t sum = 0, least = UINT64_MAX, most = 0;
	for (int i = 0; i < 1000; i++) {
		uint64_t n = pace_batch_size(&seed);
		sum += n;
		least = n < least ? n : least;
		most = n > most ? n : most;
	}
	CHECK(least >= MS / 4 && most < MS * 7 / 4 && least < MS * 3 / 10 && most > MS * 17 / 10);
	CHECK(sum / 1000 > MS * 97 / 100 && sum / 1000 < MS * 103 / 100);
}

static struct pace_cost learnt(int n, const uint64_t *samples)
{
	struct pace_cost c = {0};
	for (int i = 0; i < n; i++)
		pace_cost_sample(&c, samples[i], 0);
	return c;
}

TEST("a cost is known after three samples, and the loading of code is not part of it")
{
	const uint64_t samples[] = {50 * MS, 21000, 20000};
	struct pace_cost c = learnt(2, samples);
	CHECK(pace_cost_is_new(&c));
	c = learnt(3, samples);
	CHECK(!pace_cost_is_new(&c));
	CHECK_EQ(pace_cost_estimate(&c), 20000);
}

TEST("a kernel that becomes slower or faster is followed within 50 samples")
{
	struct pace_cost c = {0};
	for (int i = 0; i < 50; i++)
		pace_cost_sample(&c, MS, 0);
	for (int i = 0; i < 50; i++)
		pace_cost_sample(&c, 9 * MS, 0);
	CHECK(pace_cost_estimate(&c) > 85 * MS / 10);
	for (int i = 0; i < 50; i++)
		pace_cost_sample(&c, MS, 0);
	CHECK(pace_cost_estimate(&c) < 11 * MS / 10);
}

TEST("a kernel whose cost varies costs its mean, by however much")
{
	struct pace_cost little = {0}, much = {0};
	for (int i = 0; i < 1000; i++) {
		pace_cost_sample(&little, (uint64_t)MS + (uint64_t)(i * 7 % 5) * 100000, 0);
		pace_cost_sample(&much, i % 4 ? 20 * MS : MS, 0);
	}
	CHECK(pace_cost_estimate(&little) > 115 * MS / 100 &&
	      pace_cost_estimate(&little) < 125 * MS / 100);
	CHECK(pace_cost_estimate(&much) > 13 * MS && pace_cost_estimate(&much) < 18 * MS);
}

TEST("a launch that is held up, before or after the kernel begins, says nothing about the kernel")
{
	struct pace_cost c = {0};
	for (int i = 0; i < 1000; i++) {
		/* the kernel outlasts it, or it begins after it */
		uint64_t held = (uint64_t)(i * 7919 % 1200) * 1000;
		if (i % 3 == 1)
			pace_cost_sample(&c, 1400000, held + 5000);
		else if (i % 3 == 2)
			pace_cost_sample(&c, 1400000 + held, held + 5000);
		else
			pace_cost_sample(&c, 1405000, 5000);
		CHECK(i < 8 ||
		      (pace_cost_estimate(&c) > 1350000 && pace_cost_estimate(&c) < 1450000));
	}
}

TEST("what was learnt from a launch that was held up is forgotten at the first that was not")
{
	const uint64_t elapsed[] = {1400000, 1400000, 1405000}, late[] = {900000, 800000, 5000};
	struct pace_cost c = {0};
	for (int i = 0; i < 3; i++)
		pace_cost_sample(&c, elapsed[i], late[i]);
	CHECK(!pace_cost_is_new(&c));
	CHECK_EQ(pace_cost_estimate(&c), 1400000);
}

TEST("launches that have become slower for good are believed after a window of them")
{
	struct pace_cost c = {0};
	for (int i = 0; i < 20; i++)
		pace_cost_sample(&c, 20000, 5000);
	CHECK_EQ(pace_cost_estimate(&c), 15000);
	for (int i = 0; i < 16; i++)
		pace_cost_sample(&c, 60000, 20000);
	CHECK_EQ(pace_cost_estimate(&c), 15000);
	for (int i = 0; i < 60; i++)
		pace_cost_sample(&c, 60000, 20000 + (uint64_t)(i % 8) * 500);
	CHECK(pace_cost_estimate(&c) > 36000 && pace_cost_estimate(&c) < 40000);
}

TEST("a short kernel that is always launched to an idle device is known all the same")
{
	struct pace_cost c = {0};
	for (int i = 0; i < 200; i++)
		pace_cost_sample(&c, 20000, 5000 + (uint64_t)(i * 31 % 7) * 100);
	CHECK(pace_cost_estimate(&c) >= 14000 && pace_cost_estimate(&c) <= 15000);
}

TEST("a sample is freed of the host's delay, but keeps half")
{
	CHECK_EQ(pace_sample(20000, 0), 20000);
	CHECK_EQ(pace_sample(20000, 3000), 17000);
	CHECK_EQ(pace_sample(6001, 9000), 3001);
	CHECK_EQ(pace_sample(0, 2000), 0);
}

TEST("time in which the device certainly worked is charged, once, and to batches in flight first")
{
	struct pace_line l = {0};
	CHECK_EQ(pace_settle(&l, 100, 110, 0, 3, 0), 7);
	CHECK_EQ(pace_settle(&l, 105, 110, 0, 0, 0), 0);
	CHECK_EQ(pace_settle(&l, 200, 210, 4, 3, 0), 3);  /* others had 4 */
	CHECK_EQ(pace_settle(&l, 300, 310, 20, 3, 0), 0); /* more than all */
	CHECK_EQ(pace_settle(&l, 400, 410, 0, 12, 0), 0);  /* no credit */
	CHECK_EQ(pace_settle(&l, 410, 415, 0, 1, 0), 4);
	CHECK_EQ(pace_settle(&l, 500, 510, 0, 3, 7), 0);  /* theirs, it may be */
	CHECK_EQ(pace_settle(&l, 520, 520, 0, 2, 0), 5);  /* it was not */
	CHECK_EQ(pace_settle(&l, 600, 5600, 0, 20, 4000), 980); /* more than theirs */
}

/* Settles a batch by what was measured alone. */
static uint64_t settle(struct pace_line *line, uint64_t start, uint64_t end, uint64_t charged_then,
		       uint64_t predicted)
{
	uint64_t measured = pace_uncharged(line, start, end, charged_then),
		 charge = measured < predicted ? measured : predicted;
	pace_note_charge(line, start, end, charge);
	return charge;
}

TEST("time that two streams share counts once")
{
	struct pace_line line = {0};
	CHECK_EQ(settle(&line, 10, 20, 0, PACE_UNKNOWN), 10);
	CHECK_EQ(settle(&line, 15, 30, 0, PACE_UNKNOWN), 10);
	CHECK_EQ(settle(&line, 12, 15, 0, PACE_UNKNOWN), 0);
	CHECK_EQ(settle(&line, 40, 50, 20, PACE_UNKNOWN), 10); /* the gap does not count */
	CHECK_EQ(settle(&line, 60, 55, 30, PACE_UNKNOWN), 0);
	CHECK_EQ(line.latest, 50);
	CHECK_EQ(line.charged, 30);
}

TEST("a kernel that outlasts later ones pays for the time they did not")
{
	struct pace_line line = {0};
	/* two small ones while the long one runs */
	CHECK_EQ(settle(&line, 200, 250, 0, PACE_UNKNOWN), 50);
	CHECK_EQ(settle(&line, 900, 1000, 0, PACE_UNKNOWN), 100);
	CHECK_EQ(settle(&line, 150, 1100, 0, PACE_UNKNOWN), 800); /* 950 less 150 */
	for (int i = 0; i < 200; i++)
		settle(&line, 2000 + 10 * (uint64_t)i, 2005 + 10 * (uint64_t)i, line.charged,
		       PACE_UNKNOWN);
	/* more of them than are known one by one */
	CHECK_EQ(settle(&line, 2000, 4000, 950, PACE_UNKNOWN), 1000);
}

TEST("batches of several threads that overlap pay for their own work each")
{
	struct pace_line line = {0};
	for (int i = 0; i < 4; i++) /* one after the other in turn, on one stream */
		CHECK_EQ(settle(&line, 0, 4000, 0, 1000), 1000);
	CHECK_EQ(settle(&line, 0, 4000, 0, 1000), 0); /* and there is no more than that */
}

/*
 * The device does pieces of four threads' batches in any order, with pauses; each thread begins a
 * batch when its last is launched.
 */
TEST("whatever the order, threads pay together for what the device did")
{
	uint32_t seed = 3;
	for (int round = 0; round < 200; round++) {
		struct pace_line line = {0};
		struct {
			uint64_t start, work, then;
		} batch[4] = {{0, 0, 0}};
		uint64_t now = 1000, busy = 0;
		unsigned threads = 1 + (unsigned)pace_batch_size(&seed) % 4,
			 pauses = (unsigned)pace_batch_size(&seed) % 3;
		for (int i = 0; i < 4000; i++) {
			unsigned t = (unsigned)pace_batch_size(&seed) / 7 % threads;
			uint64_t kernel = 20 + pace_batch_size(&seed) / 11 % 100;
			now += pauses && pace_batch_size(&seed) / 13 % 8 < pauses
				       ? pace_batch_size(&seed) % 300
				       : 0;
			if (!batch[t].work) {
				batch[t].start = now;
				batch[t].then = line.charged;
			}
			now += kernel;
			busy += kernel;
			batch[t].work += kernel;
			if (batch[t].work > 700) {
				settle(&line, batch[t].start, now, batch[t].then, batch[t].work);
				batch[t].work = 0;
			}
		}
		if (line.charged < busy * 97 / 100 || line.charged > busy)
			printf("    %u threads, pauses %u: %llu charged of %llu\n", threads, pauses,
			       (unsigned long long)line.charged, (unsigned long long)busy);
		CHECK(line.charged >= busy * 97 / 100 && line.charged <= busy);
	}
}

TEST_MAIN
