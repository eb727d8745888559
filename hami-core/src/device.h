/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h: which entry of the limits a device is. By UUID wherever UUIDs are known;
 * an ordinal means another device as soon as CUDA_VISIBLE_DEVICES is set.
 */
#ifndef DEVICE_H
#define DEVICE_H

#include "cuda_abi.h"
#include "limits.h"

/*
 * Index of a CUDA device in the limits; -1: the limits do not name it; -2: the driver
 * does not answer yet (ask again). May fill in UUIDs that the environment did not give.
 * Not thread-safe: the caller holds the runtime's mutex.
 */
int device_index(struct limits *limits, CUdevice ordinal);
int device_index_of_uuid(struct limits *limits, const char *uuid);

#endif
