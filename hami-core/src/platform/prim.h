/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prim.h: the floor. The only way from libvgpu to the operating system for files,
 * locks and maps. Functions return 0 (or a value) on success and -1 with errno.
 */
#ifndef PRIM_H
#define PRIM_H

#include <stddef.h>
#include <stdint.h>

/*
 * Opens a file to share between processes, making it (mode 0666, whatever the umask) when absent:
 * another user never finds it with another mode. Never follows a link.
 */
int prim_open_shared(const char *path);

/* Size of an open file. */
long long prim_size(int fd);

/* Makes a file at least `size` bytes long, never shorter, with room on the disk for all of them. */
int prim_grow(int fd, size_t size);
/* Writes zeros over the first `size` bytes of a file. */
int prim_zero(int fd, size_t size);

/*
 * Maps size bytes shared; with fd -1, private memory that only this process sees. NULL on failure.
 */
void *prim_map(int fd, size_t size);
void prim_unmap(void *at, size_t size);
void prim_close(int fd);

/*
 * Locks one byte for this open file. -1 with EAGAIN when somebody else holds it.
 * pre: fd is of prim_open_shared.
 */
int prim_lock_try(int fd, long long byte);
void prim_unlock(int fd, long long byte);
/* 1 when somebody else holds one of `count` bytes, 0 when nobody does, -1: it cannot be told. */
int prim_is_locked(int fd, long long byte, long long count);

/* Tells the processor that a loop waits for another thread. */
static inline void prim_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Waits while *word, which processes may share, is `seen`; until woken, or for about `ms`. */
void prim_wait(uint32_t *word, uint32_t seen, unsigned ms);
/* Wakes one who waits there. */
void prim_wake(uint32_t *word);

/* 1 when this name is a symbolic link, wherever it leads. */
int prim_is_link(const char *path);

/*
 * -1 with errno when no file can be opened, because this process or the machine has no descriptor
 * or memory for it.
 */
int prim_can_open(void);

/* Whether an errno of opening or reading a file stands for a state that passes. */
int prim_is_transient(int error);

/*
 * Reads a whole small file. Bytes read, or -1; a file of `room` bytes or more is EFBIG. Waits for
 * nobody: a lease on it is EWOULDBLOCK.
 */
long prim_read(const char *path, char *out, size_t room);

/*
 * Writes into a file that is there, at an offset; opens it for that, so that no descriptor of ours
 * can become another's. -1 when that is impossible.
 */
int prim_write_at(const char *path, long long offset, const void *from, size_t size);
/*
 * Keeps a file open for writing for the life of the process, whatever descriptors the program
 * closes: then nobody can have a lease on it, which would refuse or delay our writing. -1 when that
 * is impossible; EWOULDBLOCK while somebody has one.
 */
int prim_keep_writable(const char *path);
/* Tells each name in a directory. 0, or -1. */
int prim_list(const char *path, void (*tell)(const char *name, void *to), void *to);
/* When a directory's names last changed, in nanoseconds; 0: not known. */
unsigned long long prim_directory_changed_ns(const char *path);

int prim_pid(void);

/* Copies from an address that need not be valid; the bytes that could be copied. */
size_t prim_peek(void *to, uint64_t from, size_t size);
/* Maps a whole file for reading; NULL when that is impossible. prim_unmap ends it. */
void *prim_map_file(const char *path, size_t *size);

/*
 * What tells this process from all others that have had or will have its PID: when it began, and
 * whose PIDs those are. 0: not known.
 */
uint64_t prim_process_identity(void);
/*
 * The part of an identity that says whose PIDs those are: the PID namespace. PIDs of different
 * spaces cannot be compared: the first process of every container has the same.
 */
static inline uint32_t prim_pid_space(uint64_t identity)
{
	return (uint32_t)identity;
}
/*
 * 1 when the process with this PID and identity is certain to have ended, though somebody it has
 * begun may live; 0 also when nobody can tell.
 */
int prim_process_is_dead(int pid, uint64_t identity);

/*
 * Marks a byte of a file as this very process's for its life, or until it closes any descriptor of
 * the file. Unlike prim_lock_try's lock, children do not keep it.
 */
void prim_own(int fd, long long byte);
/* 1 when a living process, and not this one, has marked the byte. */
int prim_is_owned(int fd, long long byte);

/*
 * Keeps an open file, and with it its locks, for as long as this very process lives, and closes
 * the descriptor: the program cannot close it, and children do not keep it, not even those that no
 * fork handler has seen. Drops what prim_own has marked in the file. -1 when that is impossible;
 * then the descriptor is still open.
 */
int prim_hold_for_life(int fd);

/*
 * Zeroed memory, which is zero again in every child of this process, also in one that no fork
 * handler has seen begin. NULL: the kernel is older than 4.14, or has no memory.
 */
void *prim_wiped_on_fork(size_t size);

/*
 * Runs a function in a copy of this process, which has the calling thread alone, and shares no
 * memory but mappings that are shared. 1 when it has ended within `ms`; 0 when it has not, and was
 * ended, or when there can be no copy. Raises no signal and is nobody's child to wait for.
 */
int prim_ends_in_copy(void (*run)(void), unsigned ms);

/*
 * CLOCK_MONOTONIC in nanoseconds, and sleeping until then (returns early on a signal); wall clock
 * in seconds.
 */
unsigned long long prim_now(void);
void prim_sleep_until(unsigned long long ns);
long long prim_date(void);
/*
 * Milliseconds of a clock that only goes forward, some milliseconds late, for a few nanoseconds of
 * work.
 */
long long prim_coarse_ms(void);

/*
 * 1 when this process may make files of this size: beyond RLIMIT_FSIZE the kernel sends SIGXFSZ,
 * which ends a program.
 */
int prim_may_grow(unsigned long long size);

/* 1 when some hundred bytes can be written to an open descriptor at once, without a signal. */
int prim_can_write(int fd);

/*
 * When the file of a descriptor was made, in nanoseconds: tells it from one that has its number
 * after it. 0: not known.
 */
unsigned long long prim_birth_ns(int fd);

/*
 * Which file an open descriptor is: two numbers that tell it from every other. -1 when it is none.
 */
int prim_identity(int fd, unsigned long long out[2]);

/*
 * Has run(with) called when the calling thread ends; for one function of this library. Nothing
 * where the C library has no such thing, nor in a copy of this library in another namespace of the
 * dynamic linker.
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

/*
 * A function of a loaded object whose file name begins with one of the prefixes; NULL when not
 * there.
 */
void *prim_symbol(const char *const *prefixes, const char *name);

/*
 * Whether a file of exactly this name is loaded; and its function, or NULL. Leaves no error in
 * dlerror.
 */
int prim_symbol_in(const char *file, const char *name, void **out);

/* As prim_symbol, before main and before a sanitizer is ready: it calls nothing. */
void *prim_symbol_early(const char *const *prefixes, const char *name);

/*
 * 1 when this copy of the library is in the namespace that the program started in, or where nobody
 * can say. Thread-safe.
 */
int prim_in_main_namespace(void);

/* 1 when a file of this name is one of NVIDIA's driver libraries. */
int prim_is_nvidia_path(const char *path);

/*
 * 1 when the code at `address` belongs to one of NVIDIA's driver libraries, by the name of its
 * file.
 */
int prim_is_nvidia(const void *address);

/*
 * 1 when the code at `address` is the driver's or this library's, in any copy: by the name of its
 * file or by the name that the file gives itself (DT_SONAME), which copies and links keep. Also 1
 * when nobody knows whose it is.
 */
int prim_is_driver(const void *address);

/* 1 when this library was built to stand in for one of the driver's. */
int prim_stands_in(void);

/*
 * 1 when a handle of the loader is the program's own, which stands for all that was loaded with
 * it.
 */
int prim_is_program(const void *handle);

/* Remembers which objects are loaded. Called once, before the program can load more. */
void prim_note_start(void);

/*
 * The function of this name in the first object behind the one around `caller` (NULL: in the
 * first of all) that has it, this library aside; NULL when there is none. For callers that were
 * loaded at the start only what was loaded then counts: what they see of libraries that are
 * loaded later, the loader alone knows.
 */
void *prim_definition(const void *caller, const char *name);

/*
 * Whether the object around an address has no function of this name. An object in another
 * namespace of the loader is not seen from here, and lacks nothing.
 */
int prim_object_lacks(const void *address, const char *name);

/* 1 when the code at an address was loaded later than the program, or when that is not known. */
int prim_is_late(const void *address);

#endif
