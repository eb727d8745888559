/* SPDX-License-Identifier: Apache-2.0 */
/* probe_entry.h: what the two halves of probe_entry have of each other. */
#ifndef PROBE_ENTRY_H
#define PROBE_ENTRY_H

#include "probe.h"

/* Device 0 gives 64 MiB and not a page more; nothing at all; 24 MiB, which others have left. */
void is_limited(void);
void closed(void);
void has_24(void);

/* Takes 40 MiB of the 64, of which another process of the container knows. */
void take_40(void);

/* probe_later.c */
void region_later(void);
void context_later(void);
void room_later(void);
void room_child(void);
void another_version(void);
void version_child(void);

#endif
