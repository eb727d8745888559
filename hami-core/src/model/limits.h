/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.h: what a container may use, as read from the limits file or from the
 * environment. The readers are total: any bytes give a value or a reason.
 */
#ifndef LIMITS_H
#define LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include "hamicore_abi.h"

enum limits_source {
	LIMITS_NONE,        /* nobody limits this process: pass everything through */
	LIMITS_FILE,        /* devices are known by UUID */
	LIMITS_ENVIRONMENT, /* devices are known by their number in PCI order */
	LIMITS_INVALID      /* there is a limits file and it cannot be used: refuse */
};

enum limits_policy { POLICY_DEFAULT, POLICY_FORCE, POLICY_DISABLE };

struct limits_device {
	int given;
	char uuid[64];    /* empty: not known (environment) */
	uint64_t memory;  /* bytes, 0 = unlimited */
	unsigned cores;   /* percent 1..100; 100 = unlimited */
};

struct limits {
	enum limits_source source;
	char region[256];
	/* This container's files among its neighbours', see borrow.h; empty: none */
	char borrow[256];
	enum limits_policy policy;
	int priority; /* 0 = high */
	struct limits_device device[HAMI_DEVICES]; /* by number in PCI order */
	int keep_deepbind; /* RTLD_DEEPBIND is left as it is */
	int oversubscribe; /* memory beyond the card is taken from the host */
	int context_free; /* contexts and code do not count against memory */
	int ignored_line; /* first line with a word of a later version, 0 = none */
};

/*
 * Reads the text of a limits file. 0 and source LIMITS_FILE, or -1 and a reason
 * ("line 3: ..."); then `out` has source LIMITS_INVALID. Words it does not know are skipped.
 */
int limits_parse(const char *text, size_t length, struct limits *out, char *reason, size_t size);

/*
 * Reads HAMi-core's variables through `get`. Nonsense in a variable counts as unset and is
 * told through `complain` (may be NULL). source is LIMITS_NONE when no variable limits anything.
 */
void limits_from_environment(const char *(*get)(const char *name),
			     void (*complain)(const char *name, const char *value),
			     struct limits *out);

/* 1 when some device has a limit: of memory, or of compute that the policy enforces. */
int limits_has_any(const struct limits *limits);

/* Index of the device with this UUID, or -1. */
int limits_find(const struct limits *limits, const char *uuid);

/*
 * "512m", "1.5GiB", "3000 MB", "1073741824": binary units, any case. 0, or -1 for anything
 * else, negative and absurd numbers included.
 */
int limits_parse_size(const char *text, uint64_t *bytes);

#endif
