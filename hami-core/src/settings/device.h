/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h: which entry of the limits a device is. By UUID wherever UUIDs are known;
 * an ordinal means another device as soon as CUDA_VISIBLE_DEVICES is set.
 */
#ifndef DEVICE_H
#define DEVICE_H

#include "cuda_abi.h"
#include "model/limits.h"

#define DEVICE_UUID 64 /* bytes of a device's UUID as text */

/*
 * Asks the driver for the UUID of a CUDA device, "GPU-...". 0, or -1 when it does not answer.
 * Call it without a lock.
 */
int device_uuid(CUdevice ordinal, char out[DEVICE_UUID]);

/*
 * Asks NVML for the UUIDs of all devices of the container, in PCI order, whatever
 * CUDA_VISIBLE_DEVICES says. Their number; 0 when NVML does not answer. Call it without a lock:
 * NVML may have to be loaded first.
 */
int device_list(char out[HAMI_DEVICES][DEVICE_UUID]);

/*
 * Index of a device that the limits do not know by its UUID, by limits that know numbers alone:
 * by its ordinal where no variable reorders devices, else the one with the tightest limit.
 */
int device_by_ordinal(const struct limits *limits, CUdevice ordinal);

#endif
