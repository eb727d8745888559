/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.h: reads what this process may use: the limits file, or else HAMi-core's variables. It
 * looks and tells; when that is done, and what follows from it, runtime.c decides.
 */
#ifndef READ_H
#define READ_H

#include "model/limits.h"

#define READ_MISTAKES 8

struct settings {
	struct limits limits;
	int strict;       /* VGPU_STRICT=1 */
	int error;        /* errno of the file that cannot be read; 0 = none */
	int may_pass;     /* the file cannot be read now; later it may be */
	char reason[256]; /* what is wrong with the file, where error does not say it */
	int mistakes;     /* variables that make no sense; the first of them: */
	char mistake[READ_MISTAKES][136];
};

/*
 * Reads the file and the variables. Says nothing, opens nothing that stays open. Callers take
 * turns.
 */
void settings_read(struct settings *out);

/* Tells the mistakes that were found. Call it without a lock. */
void settings_tell(const struct settings *s);

#endif
