/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mps_mode.h: the compute mode of a device, which says who may have contexts on it. It is
 * a file of one number, $FAKEGPU_DIR/compute-mode-<minor>; without one it is DEFAULT.
 *
 * Who has contexts is known by locks on $FAKEGPU_DIR/contexts-<minor>, which the kernel
 * drops with the process: a shared one in mode DEFAULT, an exclusive one in
 * EXCLUSIVE_PROCESS. An MPS client needs none, its server holds it.
 */
#ifndef FAKEGPU_MPS_MODE_H
#define FAKEGPU_MPS_MODE_H

enum fg_compute_mode { FG_MODE_DEFAULT = 0, FG_MODE_PROHIBITED = 2, FG_MODE_EXCLUSIVE_PROCESS = 3 };

int fg_compute_mode(const char *dir, int minor);
/* 0, or -1 when the file cannot be written. */
int fg_set_compute_mode(const char *dir, int minor, int mode);

/* The right to contexts on a device, as a descriptor to keep open; -1 when the mode forbids it. */
int fg_contexts_open(const char *dir, int minor);

#endif
