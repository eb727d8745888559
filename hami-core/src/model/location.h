/* SPDX-License-Identifier: Apache-2.0 */
/* location.h: whose memory a CUmemLocation names. */
#ifndef LOCATION_H
#define LOCATION_H

#include "cuda_abi.h"

/* LOCATION_UNKNOWN: of a driver newer than this table; it may be a device's. */
enum location_kind { LOCATION_HOST, LOCATION_DEVICE, LOCATION_UNKNOWN };

/* Writes the device's ordinal for LOCATION_DEVICE. */
static inline enum location_kind location_kind_of(CUmemLocation where, CUdevice *device)
{
	switch (where.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE: *device = where.id; return LOCATION_DEVICE;
	case CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN:
		*device = where.id & 0xff; /* the next byte is the domain */
		return LOCATION_DEVICE;
	case CU_MEM_LOCATION_TYPE_NONE:
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
	case CU_MEM_LOCATION_TYPE_INVISIBLE: return LOCATION_HOST;
	default: return LOCATION_UNKNOWN;
	}
}

#endif
