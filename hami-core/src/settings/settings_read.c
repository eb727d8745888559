/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "settings/settings_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform/log.h"
#include "platform/prim.h"

#define FILE_MAX_BYTES 65536

/* Where the limits are. Only a test build may look elsewhere: see hami-core/README.md. */
static const char *limits_path(void)
{
#ifdef HAMICORE_TEST_BUILD
	const char *path = getenv("HAMICORE_TEST_LIMITS");
	if (path)
		return path;
#endif
	return VGPU_LIMITS_PATH;
}

static const char *get_variable(const char *name)
{
	return secure_getenv(name);
}

static struct settings *reading; /* whom mistakes are told to; callers take turns */

static void note_mistake(const char *name, const char *value)
{
	int n = reading->mistakes++;
	if (n < SETTINGS_MISTAKES)
		snprintf(reading->mistake[n], sizeof reading->mistake[n], "%s=%.80s", name, value);
}

/*
 * Whether this library was put here together with a limits file, so that a missing one is no
 * decision of anybody's: it lies beside the file, or it stands in for the driver. What it goes by
 * no variable changes.
 */
static int comes_with_file(const char *path)
{
	const char *own = prim_own_path();
	size_t directory = (size_t)(strrchr(path, '/') + 1 - path);
	int beside = own && !strncmp(own, path, directory) && !strchr(own + directory, '/');
	return beside || prim_stands_in();
}

static void refuse_all(struct settings *out, int error, const char *reason)
{
	out->limits = (struct limits){.source = LIMITS_INVALID};
	out->error = error;
	out->may_pass = prim_is_transient(error);
	snprintf(out->reason, sizeof out->reason, "%s", reason);
}

/* There is no file, or none that can be read. */
static void read_without_file(struct settings *out, const char *path, int error)
{
	if (error != ENOENT && error != ENOTDIR)
		refuse_all(out, error, "");
	else if (prim_is_link(path))
		refuse_all(out, 0, "a link that leads nowhere");
	else if (comes_with_file(path))
		refuse_all(out, 0, "missing, and this library was installed with it");
	else
		limits_from_environment(get_variable, note_mistake, &out->limits);
}

void settings_read(struct settings *out)
{
	const char *path = limits_path();
	const char *strict = get_variable("VGPU_STRICT"); /* it takes, so anybody may set it */
	char reason[sizeof out->reason];
	char *text = prim_map(-1, FILE_MAX_BYTES);
	long n = text ? prim_read(path, text, FILE_MAX_BYTES) : -1;
	int error = n < 0 ? errno : 0;
	reading = out;
	*out = (struct settings){.strict = strict && !strcmp(strict, "1")};
	if (n < 0)
		read_without_file(out, path, error);
	else if (limits_parse(text, (size_t)n, &out->limits, reason, sizeof reason))
		refuse_all(out, 0, reason);
	if (text)
		prim_unmap(text, FILE_MAX_BYTES);
}

void settings_log_problems(const struct settings *s)
{
	if (s->limits.source == LIMITS_INVALID)
		log_line(LOG_ERROR,
			 "%s: %s; no device memory is given out (CUDA_ERROR_NOT_PERMITTED)",
			 limits_path(), s->error ? strerror(s->error) : s->reason);
	else if (s->limits.ignored_line)
		log_line(LOG_WARN, "%s: line %d has words of a later version, ignored",
			 limits_path(), s->limits.ignored_line);
	for (int i = 0; i < s->mistakes && i < SETTINGS_MISTAKES; i++)
		log_line(LOG_ERROR,
			 "%s makes no sense and counts as unset (write 512m, 1.5g, or a percent)",
			 s->mistake[i]);
	if (s->mistakes > SETTINGS_MISTAKES)
		log_line(LOG_ERROR, "%d more variables make no sense and count as unset",
			 s->mistakes - SETTINGS_MISTAKES);
}
