/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h: what the region says about compute: the monitor's two words, and the time of each device,
 * which all processes of the container draw on. Atomic operations only: no lock.
 */
#ifndef SHARE_H
#define SHARE_H

#include <stdint.h>

#include "hamicore_abi.h"

/* The region's recent_kernel; NULL without a region. */
const int32_t *share_word(void);
/* Devices that the region names. */
int share_devices(void);

/* Sleeps while the monitor's gate is closed (somebody of higher priority uses the device); then stamps the region. */
void share_heed_monitor(void);

/* Whether the share holds now: a monitor may suspend it while nobody else wants the device, where the container does not borrow by itself. */
int share_enforced(void);

struct vgpu_pace *share_books(int device);

struct vgpu_turn *share_turn(int device);

/* Credits the time since the last refill, whoever comes first. The balance then. */
int64_t share_refill(int device, unsigned percent, uint64_t now_ns);

/* Takes from a device's balance if it is not negative; 0 when it is: somebody else was faster. */
int share_claim(int device, int64_t ns);

/* Adds to a device's balance; negative: takes. */
void share_give(int device, int64_t ns);

#endif
