/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/reservation.h"

#include "settings/settings.h"
#include "shm/region.h"

static uint64_t grown[HAMI_DEVICES]; /* another number whenever the books have grown, by device */

int reservation_try(int device, uint64_t bytes)
{
	if (region_reserve(device, bytes, settings_memory_limit(device)))
		return -1;
	reservation_bump_generation(device); /* before the driver takes anything */
	return 0;
}

void reservation_force(int device, uint64_t bytes)
{
	reservation_bump_generation(device);
	region_force(device, bytes);
}

/*
 * A plain store of a number that no thread has stored before: nobody has to wait for the others'
 * caches.
 */
void reservation_bump_generation(int device)
{
	static uint64_t threads;
	static _Thread_local uint64_t mark __attribute__((tls_model("initial-exec")));
	if (!mark)
		mark = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED) << 32;
	__atomic_store_n(&grown[device], ++mark, __ATOMIC_RELEASE);
}

uint64_t reservation_generation(int device)
{
	return __atomic_load_n(&grown[device], __ATOMIC_ACQUIRE);
}
