/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_generation.c: which version's functions this build of the driver has; see the Makefile. */
#include "cuda_fake.h"

#ifndef FG_GENERATION
#define FG_GENERATION 99990 /* all of them */
#endif

const int fg_generation = FG_GENERATION;
