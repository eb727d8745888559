/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings_read.h: reads what this process may use: the limits file, or else HAMi-core's variables.
 * It looks and tells; when that is done, and what follows from it, settings.c decides.
 */
#ifndef SETTINGS_READ_H
#define SETTINGS_READ_H

#include "model/limits.h"

#define SETTINGS_MISTAKES 8

struct settings {
	struct limits limits;
	int strict;       /* VGPU_STRICT=1 */
	int error;        /* errno of the file that cannot be read; 0 = none */
	int may_pass;     /* the file cannot be read now; later it may be */
	char reason[256]; /* what is wrong with the file, where error does not say it */
	int mistakes;     /* variables that make no sense; the first of them: */
	char mistake[SETTINGS_MISTAKES][136];
};

/*
 * Reads the file and the variables. Says nothing, opens nothing that stays open. Callers take
 * turns.
 */
void settings_read(struct settings *out);

/* Tells the mistakes that were found. Call it without a lock. */
void settings_log_problems(const struct settings *s);

#endif
