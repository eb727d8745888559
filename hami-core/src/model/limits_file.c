/* SPDX-License-Identifier: Apache-2.0 */
/* limits_file.c: the reader of the limits file. See the format in docs/libvgpu.md#files. */
#include "model/limits.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LINE_MAX_BYTES 512

/* Where a reader says what is wrong. */
struct report {
	char *text;
	size_t size;
};

__attribute__((format(printf, 2, 3))) static int fail(const struct report *r, const char *format,
						      ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(r->text, r->size, format, args);
	va_end(args);
	return -1;
}

/* A decimal number of digits only; -1 when it is none or above max. */
static int parse_number(const char *text, uint64_t max, uint64_t *out)
{
	uint64_t n = 0;
	if (!*text)
		return -1;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return -1;
		uint64_t digit = (uint64_t)(*text - '0');
		if (n > (max - digit) / 10)
			return -1;
		n = n * 10 + digit;
	}
	*out = n;
	return 0;
}

/* Cuts the next word of a line off *cursor; NULL at its end. */
static char *next_word(char **cursor)
{
	char *p = *cursor + strspn(*cursor, " \t");
	if (!*p)
		return NULL;
	size_t n = strcspn(p, " \t");
	*cursor = p[n] ? p + n + 1 : p + n;
	p[n] = 0;
	return p;
}

static int valid_uuid(const char *uuid)
{
	size_t n = strlen(uuid);
	if (strncmp(uuid, "GPU-", 4) || n != 40)
		return 0;
	for (const char *p = uuid + 4; *p; p++)
		if (!strchr("0123456789abcdefABCDEF-", *p))
			return 0;
	return 1;
}

/* Reads memory= and cores= of a device; other keys belong to a later version. */
static int parse_amounts(char *cursor, struct limits_device *d, int *unknown,
			 const struct report *r)
{
	int have_memory = 0, have_cores = 0;
	uint64_t n;
	char *word;
	while ((word = next_word(&cursor)) != NULL) {
		if (!strncmp(word, "memory=", 7)) {
			if (have_memory++ || parse_number(word + 7, 1ULL << 60, &d->memory))
				return fail(r, "bad %.40s: want one memory= in bytes", word);
		} else if (!strncmp(word, "cores=", 6)) {
			if (have_cores++ || parse_number(word + 6, 100, &n))
				return fail(r, "bad %.40s: want one cores= from 0 to 100", word);
			d->cores = n ? (unsigned)n : 100;
		} else {
			*unknown = 1;
		}
	}
	if (!have_memory || !have_cores)
		return fail(r, "a device needs memory= and cores=");
	return 0;
}

static int parse_device(char *cursor, struct limits *out, int *unknown, const struct report *r)
{
	uint64_t index;
	char *number = next_word(&cursor), *uuid = next_word(&cursor);
	if (!number || parse_number(number, HAMI_DEVICES - 1, &index))
		return fail(r, "bad device number %.20s: want 0 to %d", number ? number : "",
			    HAMI_DEVICES - 1);
	if (!uuid || !valid_uuid(uuid))
		return fail(r, "bad device UUID %.50s", uuid ? uuid : "");
	struct limits_device *d = &out->device[index];
	if (d->given)
		return fail(r, "device %d is given twice", (int)index);
	if (limits_find(out, uuid) >= 0)
		return fail(r, "device %.50s is given twice", uuid);
	if (parse_amounts(cursor, d, unknown, r))
		return -1;
	d->given = 1;
	strcpy(d->uuid, uuid);
	return 0;
}

static int parse_policy(const char *word, struct limits *out)
{
	static const char *const words[] = {"default", "force", "disable"};
	for (int i = 0; word && i < 3; i++)
		if (!strcmp(word, words[i]))
			return out->policy = (enum limits_policy)i, 0;
	return -1;
}

/* The one absolute path after a word. */
static int parse_path(const char *word, const char *value, char *out, size_t room,
		      const struct report *r)
{
	if (!value || *value != '/' || strlen(value) >= room)
		return fail(r, "bad %s: want an absolute path of up to %zu bytes", word, room - 1);
	strcpy(out, value);
	return 0;
}

static int parse_line(char *line, struct limits *out, int *unknown, const struct report *r)
{
	uint64_t n;
	char *cursor = line, *word = next_word(&cursor), *value;
	if (!word || *word == '#')
		return 0;
	if (!strcmp(word, "device"))
		return parse_device(cursor, out, unknown, r);
	if (!strcmp(word, "region")) {
		if (parse_path(word, next_word(&cursor), out->region, sizeof out->region, r))
			return -1;
	} else if (!strcmp(word, "borrow")) {
		if (parse_path(word, next_word(&cursor), out->borrow, sizeof out->borrow, r))
			return -1;
	} else if (!strcmp(word, "context")) {
		value = next_word(&cursor);
		if (!value || (strcmp(value, "charge") && strcmp(value, "free")))
			return fail(r, "bad context: want charge or free");
		out->context_free = !strcmp(value, "free");
	} else if (!strcmp(word, "deepbind")) {
		value = next_word(&cursor);
		if (!value || (strcmp(value, "drop") && strcmp(value, "keep")))
			return fail(r, "bad deepbind: want drop or keep");
		out->keep_deepbind = !strcmp(value, "keep");
	} else if (!strcmp(word, "oversubscribe")) {
		value = next_word(&cursor);
		if (!value || (strcmp(value, "on") && strcmp(value, "off")))
			return fail(r, "bad oversubscribe: want on or off");
		out->oversubscribe = !strcmp(value, "on");
	} else if (!strcmp(word, "policy")) {
		if (parse_policy(next_word(&cursor), out))
			return fail(r, "bad policy: want default, force or disable");
	} else if (!strcmp(word, "priority")) {
		value = next_word(&cursor);
		if (!value || parse_number(value, 1000, &n))
			return fail(r, "bad priority: want 0 to 1000");
		out->priority = (int)n;
	} else {
		*unknown = 1;
		return 0;
	}
	*unknown |= next_word(&cursor) != NULL;
	return 0;
}

static int parse_lines(const char *text, size_t length, struct limits *out, const struct report *r)
{
	char line[LINE_MAX_BYTES], why[200];
	const struct report of_line = {why, sizeof why};
	size_t at = 0;
	for (int number = 1; at < length; number++) {
		const char *end = memchr(text + at, '\n', length - at);
		size_t n = (end ? (size_t)(end - text) : length) - at;
		if (n >= sizeof line || memchr(text + at, 0, n))
			return fail(r, "line %d: longer than %zu bytes, or not text", number,
				    sizeof line - 1);
		memcpy(line, text + at, n);
		line[n] = 0;
		at += n + 1;
		int unknown = 0;
		if (number == 1 && strcmp(line, VGPU_LIMITS_MAGIC))
			return fail(r, "line 1: want \"%s\"", VGPU_LIMITS_MAGIC);
		if (number > 1 && parse_line(line, out, &unknown, &of_line))
			return fail(r, "line %d: %s", number, why);
		if (unknown && !out->ignored_line)
			out->ignored_line = number;
	}
	if (!length)
		return fail(r, "the file is empty");
	return 0;
}

int limits_parse(const char *text, size_t length, struct limits *out, char *reason, size_t size)
{
	*out = (struct limits){.source = LIMITS_FILE, .priority = 1, .region = VGPU_REGION_DEFAULT};
	const struct report r = {reason, size};
	if (parse_lines(text, length, out, &r) == 0)
		return 0;
	*out = (struct limits){.source = LIMITS_INVALID};
	return -1;
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static int same_uuid(const char *a, const char *b)
{
	for (; *a && lower(*a) == lower(*b); a++, b++)
		;
	return !*a && !*b;
}

int limits_find(const struct limits *limits, const char *uuid)
{
	for (int i = 0; i < HAMI_DEVICES; i++)
		if (limits->device[i].given && limits->device[i].uuid[0] &&
		    same_uuid(limits->device[i].uuid, uuid))
			return i;
	return -1;
}

int limits_has_any(const struct limits *limits)
{
	for (int i = 0; i < HAMI_DEVICES; i++) {
		const struct limits_device *d = &limits->device[i];
		if (d->given && (d->memory ||
				 (d->cores < 100 && limits->policy != POLICY_DISABLE)))
			return 1;
	}
	return 0;
}
