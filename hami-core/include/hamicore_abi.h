/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hamicore_abi.h: the contract of libvgpu with the outside: names of variables and
 * files, and the layout of the shared region.
 *
 * The region file begins with HAMi-core's region 1.2, to the byte, so that existing
 * monitors read it: struct hami_region. Behind it, on a page of its own, lies what we
 * need in addition: struct vgpu_extension. All processes of one container map it. Containers that
 * share a claim map one region together.
 *
 * The file is every tenant's to write, so nothing in it is believed: each process knows itself
 * what it holds, and what others hold is bounded when it is read.
 *
 * Invariants of the extension; `lock` is held for every change of what is not a process's own:
 *  I1 reserved[d] is the sum of slot[i].used[d] over all slots that are LIVE and not suspended.
 *     Who takes the lock from somebody who has died, or has not given it back for 10 s, restores it
 *     from the slots; so does everybody now and then.
 *  I2 A slot never moves and has one writer, its owner. The owner holds two locks for life:
 *     - An OFD lock on VGPU_SLOT_LOCK + i, by a mapping that children do not get. The kernel drops
 *       it when the process ends, however it ends, and in every PID namespace. Where there is no
 *       such mapping, as in earlier releases, children that no fork handler has seen keep the lock.
 *     - For these a lock on VGPU_OWNER_LOCK + i. The kernel drops it with the process, and when
 *       the program closes a descriptor of the file.
 *     A LIVE slot belongs to a dead process, and anybody may free it, if it has not the second lock
 *     and either not the first, or the PID and identity of a process that has ended. PIDs are
 *     compared within one PID namespace only: those of containers that share a region repeat.
 *  I3 hami.procs[i] mirrors slot[i]; hami.proc_num is one more than the highest slot
 *     ever used. A hole has status 0.
 *  I4 reserved[d] never exceeds the limit by our doing. (It may when the limit was
 *     lowered, or when a driver took more than it was asked for: see region_force.)
 *  I5 The file never becomes shorter, and what is in it is not cleared while a slot's byte is
 *     locked: others map it.
 */
#ifndef HAMICORE_ABI_H
#define HAMICORE_ABI_H

#include <stddef.h>
#include <stdint.h>

#define VGPU_LIMITS_PATH "/usr/local/vgpu/limits"
#define VGPU_LIMITS_MAGIC "vgpu-limits 1"
#define VGPU_REGION_DEFAULT "/tmp/vgpu/vgpu.cache"
#define HAMI_REGION_DEFAULT "/tmp/cudevshr.cache"

#define ENV_MEMORY_LIMIT "CUDA_DEVICE_MEMORY_LIMIT"
#define ENV_SM_LIMIT "CUDA_DEVICE_SM_LIMIT"
#define ENV_REGION "CUDA_DEVICE_MEMORY_SHARED_CACHE"
#define ENV_PRIORITY "CUDA_TASK_PRIORITY"
#define ENV_POLICY "GPU_CORE_UTILIZATION_POLICY"
#define ENV_OVERSUBSCRIBE "CUDA_OVERSUBSCRIBE"
#define ENV_LOG_LEVEL "LIBCUDA_LOG_LEVEL"

#define HAMI_DEVICES 16
#define HAMI_PROCESSES 1024
#define HAMI_MAGIC 19920718

struct hami_memory {
	uint64_t context, module, data, offset, total;
	uint64_t spare[3];
};

struct hami_utilisation {
	uint64_t decode, encode, sm;
	uint64_t spare[3];
};

struct hami_process {
	int32_t pid, host_pid;
	struct hami_memory used[HAMI_DEVICES];
	uint64_t monitor_used[HAMI_DEVICES];
	struct hami_utilisation utilisation[HAMI_DEVICES];
	int32_t status; /* 1 = in use */
	int32_t pad;
	uint64_t sequence; /* even: stable */
	uint64_t identity; /* ours: prim_process_identity of the process; 0 = not known */
	uint64_t spare;
};

struct hami_region {
	int32_t magic, major, minor, sm_init;
	uint64_t owner_pid;
	unsigned char semaphore[32]; /* a sem_t that nobody of ours waits for */
	uint64_t device_num;
	char uuid[HAMI_DEVICES][96];
	uint64_t limit[HAMI_DEVICES];    /* bytes, 0 = none */
	uint64_t sm_limit[HAMI_DEVICES]; /* percent */
	struct hami_process procs[HAMI_PROCESSES];
	int32_t proc_num, utilization_switch, recent_kernel, priority;
	uint64_t last_kernel_time;
	unsigned char semaphore_postinit[32];
};

_Static_assert(offsetof(struct hami_region, owner_pid) == 16, "owner_pid");
_Static_assert(offsetof(struct hami_region, device_num) == 56, "device_num");
_Static_assert(offsetof(struct hami_region, uuid) == 64, "uuid");
_Static_assert(offsetof(struct hami_region, limit) == 1600, "limit");
_Static_assert(offsetof(struct hami_region, sm_limit) == 1728, "sm_limit");
_Static_assert(offsetof(struct hami_region, procs) == 1856, "procs");
_Static_assert(sizeof(struct hami_process) == 1960, "process");
_Static_assert(offsetof(struct hami_region, proc_num) == 2008896, "proc_num");
_Static_assert(offsetof(struct hami_region, last_kernel_time) == 2008912, "last_kernel_time");
_Static_assert(sizeof(struct hami_region) == 2008952, "region 1.2");

#define VGPU_EXTENSION_MAGIC 0x3154584555504756ULL /* "VGPUEXT1" */
#define VGPU_EXTENSION_VERSION 3
#define VGPU_EXTENSION_OFFSET 2011136 /* the next page after the region */
#define VGPU_FORMAT_LOCK (1LL << 40)  /* byte locked while a file is made or repaired */
#define VGPU_SLOT_LOCK (1LL << 41)    /* byte of slot 0 */
#define VGPU_OWNER_LOCK (1LL << 42)   /* the same, locked by its owner alone (POSIX lock) */

/*
 * Memory of other processes that is open here; memory in `used` that lies in the host because the
 * card was full.
 */
enum vgpu_shown { VGPU_IMPORTED, VGPU_OVERFLOW, VGPU_SHOWN };


/* Who holds extension.lock: slot + 1, or one who has VGPU_FORMAT_LOCK and no slot yet. */
#define VGPU_NEWCOMER (HAMI_PROCESSES + 1)
#define VGPU_AWAITED 0x80000000u /* somebody waits */

enum vgpu_slot_state { SLOT_FREE = 0, SLOT_LIVE = 1 };

struct vgpu_slot {
	uint32_t state;
	int32_t pid;
	uint64_t suspended; /* its memory is in a checkpoint, and counts for nobody */
	uint64_t used[HAMI_DEVICES];
	uint64_t shown[VGPU_SHOWN][HAMI_DEVICES]; /* bytes that are told and not counted */
	int32_t flight[HAMI_DEVICES]; /* calls under way that take or give memory */
};

/*
 * GPU time of a device, one for all processes. Changed by atomic operations alone, never under the
 * lock; who dies in between loses at most one refill of a few milliseconds.
 */
struct vgpu_pace {
	int64_t balance_ns;   /* GPU time left; negative: a debt */
	uint64_t refilled_ns; /* CLOCK_MONOTONIC of the last refill; 0 = never */
	uint64_t spent_ns;    /* GPU time charged so far, for monitors */
	uint64_t lost_ns;     /* time so far that work was on the device and others' ran */
};

/* A container's turn on a device that neighbours want, too. Hints: a torn one costs a turn. */
struct vgpu_turn {
	uint64_t since_ns;  /* in line since then; 0 = not */
	uint64_t began_ns;  /* at work since then; 0 = waiting */
	uint64_t resting;   /* saves up before it goes into line again */
};

/*
 * What a container tells its neighbours of a device, at VGPU_DEMAND_BYTES times its number in the
 * limits file. CLOCK_MONOTONIC; 0 = never. Written by the container, so to be believed only to its
 * own disadvantage.
 */
struct vgpu_demand {
	uint64_t wanted_ns; /* has had work to do */
	uint64_t lacked_ns; /* has had less than its guarantee of what it wanted */
	uint64_t turn_ns;   /* in line since then; 0 = not */
	uint64_t until_ns;  /* its work on the device lasts until then */
};
#define VGPU_DEMAND_BYTES 32
_Static_assert(sizeof(struct vgpu_demand) == VGPU_DEMAND_BYTES, "demand");

/*
 * Which process of the container works on a device: one at a time, while it keeps the device busy.
 * Hints: a torn one costs some milliseconds of working side by side. CLOCK_MONOTONIC; 0 = never.
 */
struct vgpu_lease {
	uint64_t holder;       /* region_own_process(); 0 = nobody */
	uint64_t began_ns;     /* it launched first then; 0 = not yet */
	uint64_t until_ns;     /* the container's work on the device ends then, by estimate */
	uint64_t seen_ns;      /* the holder waited before a launch then; 0 = it has launched */
	/* The process that waits longest has waited since then; 0 = nobody waits */
	uint64_t first_ns;
	uint64_t first_seen_ns; /* and did so still then */
};

/* What the container has seen of a device lately: see compute/borrow.c. */
struct vgpu_watch {
	uint64_t asked_ns, since_ns; /* the last look; the start of the window */
	uint64_t spent_ns, lost_ns;  /* what struct vgpu_pace said at the start of the window */
	/* How much less than its own it has had; the same while it took turns */
	uint64_t short_ns, wasted_ns;
	uint64_t left_ns;            /* it has stopped taking turns then */
	uint64_t modest;             /* wants much less than its own */
	/* The largest charge of late: so much may fall into the next window */
	uint64_t longest_ns;
};

/* How long the container may still wait for a neighbour. */
struct vgpu_patience {
	uint64_t who; /* a hash of the neighbour's name; 0 = free */
	int64_t left_ns;
	uint64_t refilled_ns;
	uint64_t asked_ns; /* the beginning of the wait that it is in; 0 = none */
};
#define VGPU_NEIGHBOURS 64

/* What the processes of a container know of a device in common. */
struct vgpu_common {
	struct vgpu_lease lease;
	uint64_t charged_ns; /* CLOCK_MONOTONIC: time up to then has been charged for, */
	uint64_t gap_from_ns, gap_to_ns; /* but for this */
	struct vgpu_watch watch;
	struct vgpu_demand demand; /* what is in the container's file */
	struct vgpu_patience patience[VGPU_NEIGHBOURS];
};

struct vgpu_extension {
	uint64_t magic; /* written last: absent means unfinished */
	uint32_t version, size;
	uint32_t lock;    /* a futex: 0, or who holds it, and whether it is awaited */
	uint32_t changed; /* not 0: the sums may be wrong, who comes next counts again */
	uint32_t new_ns[HAMI_DEVICES]; /* what launches took lately of which nothing was known */
	unsigned char room[56];
	uint64_t reserved[HAMI_DEVICES];
	struct vgpu_slot slot[HAMI_PROCESSES];
	struct vgpu_pace pace[HAMI_DEVICES];
	uint64_t context[HAMI_DEVICES]; /* what one context takes: see region_context.c */
	uint32_t context_serial[HAMI_DEVICES]; /* beginnings and ends of the making of contexts */
	struct vgpu_turn turn[HAMI_DEVICES];
	struct vgpu_common common[HAMI_DEVICES];
};

struct vgpu_region {
	struct hami_region hami;
	unsigned char gap[VGPU_EXTENSION_OFFSET - sizeof(struct hami_region)];
	struct vgpu_extension ext;
};

_Static_assert(offsetof(struct vgpu_region, ext) == VGPU_EXTENSION_OFFSET, "extension");
_Static_assert(offsetof(struct vgpu_extension, slot) == 272, "slots lie as in version 2");
_Static_assert(VGPU_EXTENSION_OFFSET % 4096 == 0, "extension on a page");

#endif
