/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prim.h: the floor. The only way from libvgpu to the operating system for files,
 * locks and maps. Functions return 0 (or a value) on success and -1 with errno.
 */
#ifndef PRIM_H
#define PRIM_H

#include <stddef.h>

/* Opens a file to share between processes, making it (mode 0666, whatever the umask) when absent. Never follows a link. */
int prim_open_shared(const char *path);

/* Size of an open file. */
long long prim_size(int fd);

/* Makes a file at least `size` bytes long, all zero. */
int prim_clear(int fd, size_t size);

/* Maps size bytes shared; with fd -1, private memory that only this process sees. NULL on failure. */
void *prim_map(int fd, size_t size);
void prim_unmap(void *at, size_t size);
void prim_close(int fd);

/* Locks one byte for this open file, waiting for it. pre: fd was opened by prim_open_shared. */
int prim_lock_wait(int fd, long long byte);
/* The same without waiting: -1 when somebody else holds it. */
int prim_lock_try(int fd, long long byte);
void prim_unlock(int fd, long long byte);
/* 1 when somebody else holds it, 0 when nobody does. */
int prim_locked(int fd, long long byte);

/* Reads a whole small file. Bytes read, or -1; a file of `room` bytes or more is EFBIG. */
long prim_read(const char *path, char *out, size_t room);

int prim_pid(void);

/* What a name is in the loaded object that `soname_prefix` begins the file name of; NULL when not there. */
void *prim_symbol(const char *const *soname_prefixes, const char *name);

/* 1 when the code at `address` belongs to one of NVIDIA's driver libraries. */
int prim_is_nvidia(const void *address);

#endif
