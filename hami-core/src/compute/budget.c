/* SPDX-License-Identifier: Apache-2.0 */
#include "compute/budget.h"

#include "compute/limiter.h"
#include "model/pace.h"
#include "platform/prim.h"
#include "settings/settings.h"
#include "shm/region.h"

/*
 * The balance lies where every tenant can write. A debt of more than this counts as this: only a
 * kernel that lasts longer makes one, and without a bound a number that somebody wrote would
 * hold all launches for years.
 */
#define DEBT_MOST_NS (int64_t)BUDGET_LONGEST_NS

static int64_t clamp_balance(int64_t balance)
{
	if (balance < -DEBT_MOST_NS)
		return -DEBT_MOST_NS;
	return balance > PACE_WINDOW_NS ? PACE_WINDOW_NS : balance;
}

static struct hami_region *monitor_region(void)
{
	return &region_mapping()->hami;
}

const int32_t *budget_monitor_word(void)
{
	return region_mapping() ? &monitor_region()->recent_kernel : NULL;
}

int budget_device_count(void)
{
	int n = 0;
	for (int i = 0; i < HAMI_DEVICES; i++)
		n += monitor_region()->uuid[i][0] != 0;
	return n;
}

void budget_wait_for_monitor(void)
{
	struct hami_region *h = monitor_region();
	int32_t now;
	while ((now = (int32_t)word_get32(&h->recent_kernel)) < 0)
		prim_sleep_until(prim_now() + PACE_SLICE_NS);
	if (now != LIMITER_IDLE) /* loses against a monitor that closes the gate right now */
		__atomic_compare_exchange_n(&h->recent_kernel, &now, LIMITER_IDLE, 0,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	uint64_t date = (uint64_t)prim_date();
	if (word_get(&h->last_kernel_time) != date)
		word_set(&h->last_kernel_time, date);
}

int budget_is_enforced(void)
{
	/* who borrows needs no monitor, and the region is the tenant's to write */
	return settings_policy() == POLICY_FORCE || *settings_borrow_path() ||
	       word_get32(&monitor_region()->utilization_switch) != 0;
}

struct vgpu_pace *budget_of(int device)
{
	return &region_mapping()->ext.pace[device];
}

uint32_t *budget_guess_word(int device)
{
	return &region_mapping()->ext.new_ns[device];
}

struct vgpu_turn *budget_turn(int device)
{
	return &region_mapping()->ext.turn[device];
}

struct vgpu_common *budget_common(int device)
{
	return &region_mapping()->ext.common[device];
}

static int64_t read_balance(const struct vgpu_pace *b)
{
	return (int64_t)word_get((const uint64_t *)&b->balance_ns);
}

/*
 * Notes time that nothing was charged for, with what was left of the time like that a moment
 * before.
 */
static void note_gap(struct vgpu_common *c, uint64_t from, uint64_t to)
{
	uint64_t first = word_get(&c->gap_from_ns), last = word_get(&c->gap_to_ns);
	uint64_t left = last > first && from - last < PACE_WINDOW_NS ? last - first : 0;
	left = left < BUDGET_LONGEST_NS ? left : BUDGET_LONGEST_NS;
	word_set(&c->gap_from_ns, from > left ? from - left : from);
	word_set(&c->gap_to_ns, to);
}

/* Takes from that time what lies between two moments. */
static uint64_t fill_gap(struct vgpu_common *c, uint64_t since, uint64_t till, uint64_t ns)
{
	uint64_t begin = word_get(&c->gap_from_ns), first = begin > since ? begin : since,
		 end = word_get(&c->gap_to_ns), last, taken;
	do {
		last = budget_clamp_moment(&end, till);
		uint64_t room = last > first ? last - first : 0;
		taken = ns < room ? ns : room;
		if (!taken)
			return 0;
	} while (!__atomic_compare_exchange_n(&c->gap_to_ns, &end, last - taken, 0,
					      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return taken;
}

uint64_t budget_charge(int device, uint64_t since, uint64_t till, uint64_t ns)
{
	struct vgpu_common *c = budget_common(device);
	uint64_t before = word_get(&c->charged_ns), from, fits;
	do {
		from = before > since ? before : since;
		/* another process has looked at the clock after us; or the word is nonsense */
		if (from > till)
			from = before - till < PACE_WINDOW_NS ? till : since;
		fits = ns < till - from ? ns : till - from;
	} while (!__atomic_compare_exchange_n(&c->charged_ns, &before, from + fits, 0,
					      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	if (fits < ns) /* the work of another process or thread began later and was settled first */
		fits += fill_gap(c, since, till, ns - fits);
	if (before < since)
		note_gap(c, before, since);
	/* a hint: of two at once it may keep the smaller */
	if (word_get(&c->watch.longest_ns) < fits)
		word_set(&c->watch.longest_ns, fits);
	return fits;
}

int64_t budget_refill(int device, unsigned percent, uint64_t now)
{
	struct vgpu_pace *b = budget_of(device);
	uint64_t before = word_get(&b->refilled_ns);
	int64_t balance = read_balance(b), then;
	/* another process has looked at the clock after us */
	if (before >= now && before - now < 1000000000ULL)
		return clamp_balance(balance);
	if (!__atomic_compare_exchange_n(&b->refilled_ns, &before, now, 0, __ATOMIC_RELAXED,
					 __ATOMIC_RELAXED))
		return clamp_balance(balance); /* somebody else does it */
	if (!before || before >= now) /* new, or of before a reboot */
		return clamp_balance(balance);
	do
		then = pace_refill(clamp_balance(balance), now - before, percent);
	while (!__atomic_compare_exchange_n(&b->balance_ns, &balance, then, 0, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED));
	return then;
}

int budget_claim(int device, int64_t ns)
{
	struct vgpu_pace *b = budget_of(device);
	int64_t balance = read_balance(b);
	do
		if (balance < 0)
			return 0;
	while (!__atomic_compare_exchange_n(&b->balance_ns, &balance, clamp_balance(balance) - ns,
					    0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return 1;
}

void budget_add(int device, int64_t ns)
{
	if (ns)
		__atomic_add_fetch(&budget_of(device)->balance_ns, ns, __ATOMIC_RELAXED);
}
