/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/books.h"

#include "settings/runtime.h"
#include "shm/region.h"

static uint64_t grown[HAMI_DEVICES]; /* another number whenever the books have grown, by device */

int books_reserve(int device, uint64_t bytes)
{
	if (region_reserve(device, bytes, runtime_memory_limit(device)))
		return -1;
	books_note_growth(device); /* before the driver takes anything */
	return 0;
}

void books_force(int device, uint64_t bytes)
{
	books_note_growth(device);
	region_force(device, bytes);
}

/*
 * A plain store of a number that no thread has stored before: nobody has to wait for the others'
 * caches.
 */
void books_note_growth(int device)
{
	static uint64_t threads;
	static _Thread_local uint64_t mark __attribute__((tls_model("initial-exec")));
	if (!mark)
		mark = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED) << 32;
	__atomic_store_n(&grown[device], ++mark, __ATOMIC_RELEASE);
}

uint64_t books_growth(int device)
{
	return __atomic_load_n(&grown[device], __ATOMIC_ACQUIRE);
}
