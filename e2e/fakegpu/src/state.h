/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h: what all processes of the fake machine share: who uses how much of
 * which device, which device is lost, which Xids were raised.
 *
 * One file, $FAKEGPU_DIR/state, mapped by everybody (host and containers).
 *
 * Rules that keep it right after a crash at any instruction:
 *  - There is no counter. Used memory of a device is the sum over process slots. Its highest
 *    value is kept, because nobody who only looks now and then would see it: whatever a
 *    process takes is noted by fg_note_use before the lock is given back.
 *  - A slot belongs to a living process exactly while that process holds a POSIX
 *    lock on the slot's byte: the kernel drops it on any death, and translates
 *    the holder's PID into the asker's PID namespace (F_OFD_GETLK).
 *  - Every change happens under an OFD lock on byte 0, also dropped by the kernel.
 * The file is never closed by a process that holds a slot: closing any descriptor
 * of a file drops a process's POSIX locks on it.
 */
#ifndef FAKEGPU_STATE_H
#define FAKEGPU_STATE_H

#include "topology.h"

#define FG_MAX_PROCESSES 1024
#define FG_EVENT_RING 64
#define FG_FLIGHT_LOG 8192

/* A compute instance and a GPU instance (MIG); see mig.h. A serial number is never used twice. */
#define FG_MAX_INSTANCES 8

struct fg_ci {
	uint32_t in_use, id;
	uint32_t start, slices; /* compute slices of its GPU instance */
	uint64_t serial;
	char uuid[48]; /* "MIG-" and 36 characters */
};

struct fg_gi {
	uint32_t in_use, id;
	uint32_t profile; /* NVML's number */
	uint32_t start, slices; /* memory slices of the device */
	uint32_t compute;
	uint64_t serial;
	uint64_t busy_until_ns; /* as of a device: instances work side by side */
	struct fg_ci ci[FG_MAX_INSTANCES];
};

struct fg_mig_state {
	uint32_t known; /* 0: the topology's mode still holds */
	uint32_t current, pending;
	uint32_t unused;
	struct fg_gi gi[FG_MAX_INSTANCES];
};

enum { FG_REMAP_NONE, FG_REMAP_PENDING, FG_REMAP_FAILED };

struct fg_device_state {
	uint32_t lost;
	uint16_t recovery; /* what NVML says has to be done with it: nvmlDeviceGpuRecoveryAction_t */
	uint16_t remap; /* of its rows of memory */
	uint64_t event_count; /* Xids ever raised; xid[i % FG_EVENT_RING] is number i */
	uint64_t xid[FG_EVENT_RING];
	uint64_t busy_until_ns; /* CLOCK_MONOTONIC: end of the work queued so far */
	uint64_t busy_total_ns;
	uint64_t used_high; /* bytes: the most that all processes together used since it was last reset */
	uint64_t flights; /* rises ever noted in flight_log; number i is at i % FG_FLIGHT_LOG */
	uint64_t flight_log[FG_FLIGHT_LOG]; /* bytes used and asked for after each rise: see cuda_watch.c */
	struct fg_mig_state mig;
	int64_t licence; /* as in struct fg_gpu */
	uint32_t licence_known, unused; /* 0: the topology's licence still holds */
};

/* A failure or delay ordered for a function by fakegpuctl; see mig.h. */
#define FG_MAX_FAULTS 16
struct fg_fault {
	char function[72]; /* empty: none */
	uint32_t after; /* calls to go until it fails: 1 = the next one; 0 = none does */
	uint32_t always;
	int32_t code;
	uint32_t delay_ms;
};

struct fg_process {
	uint32_t in_use;
	uint32_t pid; /* in the namespace of the process itself */
	char name[32];
	uint64_t open; /* bit per minor: devices that CUDA has opened */
	uint64_t watched; /* bit per minor: devices registered in an event set of NVML */
	uint64_t gi_serial, ci_serial; /* the instance this process runs on; 0: on whole devices */
	uint64_t used[FG_MAX_DEVICES]; /* bytes, by minor */
	uint64_t asked[FG_MAX_DEVICES]; /* bytes that calls under way have yet to take: see cuda_watch.c */
	uint64_t busy_ns[FG_MAX_DEVICES];
	uint32_t checkpoint, unused; /* CUprocessState: see cuda_checkpoint.c */
	uint64_t saved[FG_MAX_DEVICES]; /* bytes off the device while it is checkpointed */
};

struct fg_state {
	uint64_t magic;
	uint32_t version;
	uint32_t size;
	uint64_t high; /* one more than the highest slot ever taken */
	uint64_t serials; /* instances ever made */
	uint64_t boots;
	struct fg_fault fault[FG_MAX_FAULTS];
	struct fg_device_state device[FG_MAX_DEVICES];
	struct fg_process process[FG_MAX_PROCESSES];
};

/*
 * Maps dir/state, making it when absent, and anew when it is of another version and no
 * process has a slot in it. 0, or -1 with a sentence in error.
 * Keeps the descriptor for the life of the process. Thread-safe; repeated calls are free.
 */
int fg_state_open(const char *dir, char *error, size_t size);
struct fg_state *fg_state(void);

/* Exclusive access for processes and threads. Not recursive. */
void fg_lock(void);
void fg_unlock(void);

/* Takes a slot for this process (needs the lock). Slot number, or -1 when all are taken. */
int fg_claim(void);

/* Frees slots whose process has died (needs the lock). */
void fg_reap(void);

/* PID of a slot's living owner as seen from here; 0 = in another namespace; -1 = dead. */
int fg_owner(int slot);

/* Bytes used on a device by all living processes (needs the lock; reaps). */
uint64_t fg_used(int minor);

/* The same of what a process calls its device: the whole of it, or all users of one GPU instance. */
uint64_t fg_used_of(const struct fg_gpu *gpu);

/*
 * The most that was ever used of a device at one instant, in bytes, since the last reset, and a
 * reset to what is used now (both need the lock). fg_note_use is called after every taking.
 */
uint64_t fg_used_high(int minor);
void fg_reset_used_high(int minor);
void fg_note_use(int minor);

/* The licence of a vGPU, as fakegpuctl or the topology says it (needs the lock). */
int64_t fg_licence_of(const struct fg_gpu *gpu);

/* After fork in the child: forget the parent's mapping, descriptor and slot. */
void fg_after_fork(void);

uint64_t fg_now_ns(void);

#endif
