/* SPDX-License-Identifier: Apache-2.0 */
#include "model/limit.h"

uint64_t limit_round_to_pages(uint64_t bytes)
{
	if (bytes > UINT64_MAX - (PAGE_BYTES - 1))
		return UINT64_MAX;
	return (bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

int limit_admits(uint64_t used, uint64_t ask, uint64_t limit)
{
	if (ask > LIMIT_MOST)
		return 0;
	return limit == 0 || (used <= limit && ask <= limit - used);
}

uint64_t limit_visible_total(uint64_t physical_total, uint64_t limit)
{
	return limit && limit < physical_total ? limit : physical_total;
}

uint64_t limit_visible_free(uint64_t physical_free, uint64_t used, uint64_t limit)
{
	if (!limit)
		return physical_free;
	uint64_t left = used < limit ? limit - used : 0;
	return left < physical_free ? left : physical_free;
}

uint32_t limit_clamp_u32(uint64_t bytes)
{
	return bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}
