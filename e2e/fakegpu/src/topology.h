/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.h: the machine that the fake driver pretends to drive, read from
 * $FAKEGPU_DIR/topology. The text format is described in ../README.md.
 */
#ifndef FAKEGPU_TOPOLOGY_H
#define FAKEGPU_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

#define FG_MAX_DEVICES 16

enum fg_mig { FG_MIG_NONE, FG_MIG_CAPABLE, FG_MIG_ENABLED };

/* NVML's virtualization modes, after the one of a driver that does not know the question. */
enum fg_virtual { FG_VIRTUAL_UNSAID, FG_VIRTUAL_NONE, FG_VIRTUAL_PASSTHROUGH, FG_VIRTUAL_VGPU };

/* A licence of a vGPU: one of these, or when it ends in seconds since 1970. */
#define FG_LICENCE_NONE (-1)
#define FG_LICENCE_OK 0 /* for ever */

struct fg_gpu {
	int minor;  /* its line in the file, from 0; also the N of /dev/nvidiaN */
	char model[96];
	char uuid[48]; /* "GPU-" and 36 characters */
	uint64_t memory; /* bytes */
	int cc_major, cc_minor;
	int numa; /* -1 when not given */
	int sms;
	enum fg_mig mig;
	enum fg_virtual virt;
	int64_t licence;
	unsigned domain, bus, slot;
	char nvlink[16]; /* devices of one non-empty group are linked to each other */
	/* Of a partition that stands for a device (mig.h), else 0 and empty. */
	uint64_t gi_serial, ci_serial;
	unsigned gi, ci;
	char parent[48];
};

struct fg_topology {
	char driver[32];
	int cuda_major, cuda_minor;
	int count;
	struct fg_gpu gpu[FG_MAX_DEVICES];
};

/* Directory of topology and state: $FAKEGPU_DIR or /run/fakegpu. */
const char *fg_dir(void);

/*
 * Reads dir/topology. 0, or -1 with a sentence in error that names file and line.
 */
int fg_topology_read(const char *dir, struct fg_topology *out, char *error, size_t size);

/* Parses text; name stands for the file in messages. Same result as above. */
int fg_topology_parse(const char *name, char *text, struct fg_topology *out, char *error, size_t size);

/* Reads none, ok or seconds since 1970. 0, or -1 when it is neither. */
int fg_licence_parse(const char *text, int64_t *out);

/* A stable UUID made of a seed: prefix is "GPU-" or "MIG-"; out has 48 bytes. */
void fg_uuid(char *out, const char *prefix, const char *seed);

/* Whether <FAKEGPU_DEV or /dev>/nvidia<minor> is a character device, as the real driver asks. */
int fg_gpu_visible(const struct fg_gpu *gpu);

#endif
