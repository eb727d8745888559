/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prim.h: the floor. The only way from libvgpu to the operating system for files,
 * locks and maps. Functions return 0 (or a value) on success and -1 with errno.
 */
#ifndef PRIM_H
#define PRIM_H

#include <pthread.h>
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

/* Reads a whole small file. Bytes read, or -1; a file of `room` bytes or more is EFBIG. Waits for nobody: a lease on it is EWOULDBLOCK. */
long prim_read(const char *path, char *out, size_t room);

/*
 * Writes into a file that is there, at an offset; opens it for that, so that no descriptor of ours can become another's.
 * -1 when that is impossible.
 */
int prim_write_at(const char *path, long long offset, const void *from, size_t size);
/*
 * Keeps a file open for writing for the life of the process, whatever descriptors the program closes: then nobody can have a lease
 * on it, which would refuse or delay our writing. -1 when that is impossible; EWOULDBLOCK while somebody has one.
 */
int prim_keep_writable(const char *path);
/* Tells each name in a directory. 0, or -1. */
int prim_list(const char *path, void (*tell)(const char *name, void *to), void *to);
/* When a directory's names last changed, in nanoseconds; 0: not known. */
unsigned long long prim_changed(const char *path);

int prim_pid(void);

/* CLOCK_MONOTONIC in nanoseconds, and sleeping until then (returns early on a signal); wall clock in seconds. */
unsigned long long prim_now(void);
void prim_sleep_until(unsigned long long ns);
long long prim_date(void);
/* Milliseconds of a clock that only goes forward, some milliseconds late, for a few nanoseconds of work. */
long long prim_coarse_ms(void);

/* Which file an open descriptor is: two numbers that tell it from every other. -1 when it is none. */
int prim_identity(int fd, unsigned long long out[2]);

/*
 * The mutex in the region: shared by processes, and robust against the death of its
 * holder. Functions that moved between libraries in the C library's history are looked
 * up when first used, so that one libvgpu runs on all of them; ENOSYS without them.
 */
int prim_mutex_make(pthread_mutex_t *m);
/* 0, EOWNERDEAD (held; the one before died in it), or an error, ETIMEDOUT among them. */
int prim_mutex_lock(pthread_mutex_t *m, int seconds);
int prim_mutex_consistent(pthread_mutex_t *m);

/*
 * Has run(with) called when the calling thread ends; for one function of this library. Nothing where the C library has no such thing,
 * nor in a copy of this library in another namespace of the dynamic linker.
 */
void prim_at_thread_end(void (*run)(void *), void *with);

/* A library's handle, loading it when it is not there yet; NULL when there is none. */
void *prim_library(const char *soname);

/* The handle of a library that is loaded already, else NULL. */
void *prim_library_loaded(const char *soname);

/*
 * Loads a library into a new namespace of the dynamic linker. The namespace's number, or -1.
 * pre: open_in is the C library's dlmopen.
 */
long prim_namespace(void *(*open_in)(long, const char *, int), const char *path);

/* Path of the object that this code is in, as it was loaded. NULL when that is not known. */
const char *prim_own_path(void);

/* A function of a loaded object whose file name begins with one of the prefixes; NULL when not there. */
void *prim_symbol(const char *const *prefixes, const char *name);

/* Whether a file of exactly this name is loaded; and its function, or NULL. Leaves no error in dlerror. */
int prim_symbol_in(const char *file, const char *name, void **out);

/* As prim_symbol, before main and before a sanitizer is ready: it calls nothing. */
void *prim_symbol_early(const char *const *prefixes, const char *name);

/* 1 when this copy of the library is in the namespace that the program started in, or where nobody can say. Thread-safe. */
int prim_in_main_namespace(void);

/* 1 when a file of this name is one of NVIDIA's driver libraries. */
int prim_is_nvidia_path(const char *path);

/* 1 when the code at `address` belongs to one of NVIDIA's driver libraries. */
int prim_is_nvidia(const void *address);

#endif
