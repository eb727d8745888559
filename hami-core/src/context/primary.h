/* SPDX-License-Identifier: Apache-2.0 */
/*
 * primary.h: the primary context of each device, remembered since its first retain.
 * It says whether a call makes or ends one, which the driver's answers alone do not. Thread-safe.
 */
#ifndef PRIMARY_H
#define PRIMARY_H

#include "cuda_abi.h"

/* The context remembered for a CUDA device; NULL when none was seen. It may have gone since. */
CUcontext primary_of(CUdevice device);
void primary_remember(CUdevice device, CUcontext context);

/* Counts references that this process takes and gives back; how many there are then. */
int primary_add_references(CUdevice device, int change);

/* A number that changes when a device has another primary context than before. */
unsigned primary_generation(CUdevice device);
void primary_bump_generation(CUdevice device);

/* Whether a device's primary context exists; 1 when the driver does not say. */
int primary_is_active(CUdevice device);

/* Asks the driver for an active primary context and remembers it. NULL when it does not say. */
CUcontext primary_query(CUdevice device);

/* Whether a context is some device's active primary one. */
int primary_includes(CUcontext context);

/* In a child after fork: CUDA is gone there. */
void primary_after_fork(void);

#endif
