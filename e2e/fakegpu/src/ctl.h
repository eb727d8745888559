/* SPDX-License-Identifier: Apache-2.0 */
/* ctl.h: the parts of fakegpuctl. Each command takes its words and returns the exit code. */
#ifndef FAKEGPU_CTL_H
#define FAKEGPU_CTL_H

#include "mig.h"

/* Prints the sentence after "fakegpuctl: "; 1, for return. */
int ctl_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The device that a word names by index, or NULL after saying that there is none. */
const struct fg_gpu *ctl_device(const struct fg_topology *t, const char *word);
/* A whole number of text; -1 when it is not one from 0 to max. */
long ctl_number(const char *text, long max);

int ctl_show(const struct fg_topology *t);
int ctl_peak(const struct fg_topology *t, char **words);
int ctl_watch(const struct fg_topology *t, char **words);
int ctl_xid(const struct fg_topology *t, char **words);
int ctl_lose(const struct fg_topology *t, char **words);
int ctl_restore(const struct fg_topology *t, char **words);
int ctl_recovery(const struct fg_topology *t, char **words);
int ctl_remap(const struct fg_topology *t, char **words);
int ctl_licence(const struct fg_topology *t, char **words);
int ctl_mig(const struct fg_topology *t, char **words);
int ctl_create(const struct fg_topology *t, char **words);
int ctl_destroy(const struct fg_topology *t, char **words);
int ctl_reset(const struct fg_topology *t, char **words);
int ctl_reboot(const struct fg_topology *t, char **words);
int ctl_faulty(const struct fg_topology *t, char **words);
int ctl_slow(const struct fg_topology *t, char **words);
int ctl_mend(const struct fg_topology *t, char **words);

#endif
