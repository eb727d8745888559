/* SPDX-License-Identifier: Apache-2.0 */
/*
 * word.h: words that other processes may write at any moment. Each is read once, into a
 * local: what was checked and what is used are then the same.
 */
#ifndef WORD_H
#define WORD_H

#include <stdint.h>

static inline uint64_t word_get(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void word_set(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline uint32_t word_get32(const void *word)
{
	return __atomic_load_n((const uint32_t *)word, __ATOMIC_ACQUIRE);
}

static inline void word_set32(void *word, uint32_t value)
{
	__atomic_store_n((uint32_t *)word, value, __ATOMIC_RELEASE);
}

#endif
