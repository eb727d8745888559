/* SPDX-License-Identifier: Apache-2.0 */
#include "share.h"

#include "limiter.h"
#include "pace.h"
#include "prim.h"
#include "region.h"
#include "runtime.h"

static struct hami_region *region(void)
{
	return &region_memory()->hami;
}

const int32_t *share_word(void)
{
	return region_memory() ? &region()->recent_kernel : NULL;
}

int share_devices(void)
{
	int n = 0;
	for (int i = 0; i < HAMI_DEVICES; i++)
		n += region()->uuid[i][0] != 0;
	return n;
}

void share_heed_monitor(void)
{
	struct hami_region *h = region();
	int32_t now;
	while ((now = __atomic_load_n(&h->recent_kernel, __ATOMIC_RELAXED)) < 0)
		prim_sleep_until(prim_now() + PACE_SLICE_NS);
	if (now != LIMITER_IDLE) /* loses against a monitor that closes the gate right now */
		__atomic_compare_exchange_n(&h->recent_kernel, &now, LIMITER_IDLE, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	uint64_t date = (uint64_t)prim_date();
	if (__atomic_load_n(&h->last_kernel_time, __ATOMIC_RELAXED) != date)
		__atomic_store_n(&h->last_kernel_time, date, __ATOMIC_RELAXED);
}

int share_enforced(void)
{
	return runtime_policy() == POLICY_FORCE || *runtime_borrow() || /* who borrows needs no monitor, and the region is the tenant's to write */
	       __atomic_load_n(&region()->utilization_switch, __ATOMIC_RELAXED) != 0;
}

struct vgpu_pace *share_books(int device)
{
	return &region_memory()->ext.pace[device];
}

struct vgpu_turn *share_turn(int device)
{
	return &region_memory()->ext.turn[device];
}

int64_t share_refill(int device, unsigned percent, uint64_t now)
{
	struct vgpu_pace *b = share_books(device);
	uint64_t before = __atomic_load_n(&b->refilled_ns, __ATOMIC_RELAXED);
	int64_t balance = __atomic_load_n(&b->balance_ns, __ATOMIC_RELAXED), then;
	if (before >= now && before - now < 1000000000ULL)
		return balance; /* another process has looked at the clock after us */
	if (!__atomic_compare_exchange_n(&b->refilled_ns, &before, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return balance; /* somebody else does it */
	if (!before || before >= now) /* new, or of before a reboot */
		return balance;
	do
		then = pace_refill(balance, now - before, percent);
	while (!__atomic_compare_exchange_n(&b->balance_ns, &balance, then, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return then;
}

int share_claim(int device, int64_t ns)
{
	struct vgpu_pace *b = share_books(device);
	int64_t balance = __atomic_load_n(&b->balance_ns, __ATOMIC_RELAXED);
	do
		if (balance < 0)
			return 0;
	while (!__atomic_compare_exchange_n(&b->balance_ns, &balance, balance - ns, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return 1;
}

void share_give(int device, int64_t ns)
{
	if (ns)
		__atomic_add_fetch(&share_books(device)->balance_ns, ns, __ATOMIC_RELAXED);
}
