/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_exports.h: prototypes of everything in cuda_entries.def. */
#ifndef FAKEGPU_CUDA_EXPORTS_H
#define FAKEGPU_CUDA_EXPORTS_H

#include "cuda_abi.h"

#define FG_ENTRY(base, symbol, since, per_thread, args) \
	__attribute__((visibility("default"))) CUresult symbol args;
#include "cuda_entries.def"
#undef FG_ENTRY

#endif
