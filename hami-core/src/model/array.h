/* SPDX-License-Identifier: Apache-2.0 */
/* array.h: how much memory a CUDA array takes. Pure. */
#ifndef ARRAY_H
#define ARRAY_H

#include <stdint.h>

#include "cuda_abi.h"

/*
 * Bytes of an array with this many mip levels (1: a plain array), a lower bound of what
 * the driver takes: it does not tell its padding. UINT64_MAX when there is no such number.
 * 0 for arrays that get their memory later (sparse, deferred).
 */
uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels);

#endif
