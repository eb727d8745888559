/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region_file.h: the region's file: found, made, or repaired. A file that processes use stays as it
 * is but for its header, and no file becomes shorter: whoever has mapped it would get SIGBUS.
 */
#ifndef REGION_FILE_H
#define REGION_FILE_H

#include "hamicore_abi.h"

/*
 * Opens and maps the region at a path, NULL with errno: EPROTONOSUPPORT when processes of
 * another version of this library use it. Until region_file_unlock_format the format lock keeps
 * others from making it anew, unless somebody holds that for ever.
 */
struct vgpu_region *region_file_open(const char *path, int *fd);
/* Lets others in, once this process has a slot or gives up. */
void region_file_unlock_format(int fd);

/* Memory in place of a file, which only this process sees. NULL on failure. */
struct vgpu_region *region_file_open_private(void);

/* Writes what is wrong in the header again. */
void region_file_repair_header(struct vgpu_region *map);

#endif
