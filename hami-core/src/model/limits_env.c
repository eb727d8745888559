/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits_env.c: HAMi-core's variables, read with care: a value that makes no sense counts as
 * unset and is told, never as a number of bytes that nobody meant.
 */
#include "model/limits.h"

#include <stdio.h>
#include <string.h>

/* Digits with an optional fraction, in units of 1/1000: "1.5" is 1500. -1 when there are none. */
static int parse_thousandths(const char **text, uint64_t *out)
{
	const char *p = *text;
	uint64_t n = 0, unit = 1000;
	if (*p < '0' || *p > '9')
		return -1;
	for (; *p >= '0' && *p <= '9'; p++) {
		if (n > (1ULL << 60) / 10)
			return -1;
		n = n * 10 + (uint64_t)(*p - '0');
	}
	if (n > (1ULL << 60) / 1000)
		return -1;
	n *= 1000;
	if (*p == '.')
		for (p++; *p >= '0' && *p <= '9'; p++)
			n += (uint64_t)(*p - '0') * (unit /= 10);
	*text = p;
	*out = n;
	return 0;
}

int limits_parse_size(const char *text, uint64_t *bytes)
{
	static const char units[] = "kmgt";
	uint64_t n;
	int shift = 0;
	text += strspn(text, " \t");
	if (parse_thousandths(&text, &n))
		return -1;
	text += strspn(text, " \t");
	const char *unit = *text ? strchr(units, *text | 0x20) : NULL;
	if (unit) {
		shift = (int)(unit - units + 1) * 10;
		text++;
		if ((*text | 0x20) == 'i')
			text++;
	}
	if ((*text | 0x20) == 'b')
		text++;
	text += strspn(text, " \t");
	if (*text || n > (1ULL << 60) >> shift || (!shift && n % 1000))
		return -1;
	/* 2^shift is applied first where it cannot overflow, so that fractions stay exact */
	*bytes = n <= (UINT64_MAX >> shift) ? (n << shift) / 1000 : (n / 1000) << shift;
	return 0;
}

/* Percent of a device: 0 and above 100 mean all of it. -1 for what is no whole number. */
static int parse_percent(const char *text, unsigned *out)
{
	unsigned n = 0;
	if (!*text || strlen(text) > 6)
		return -1;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return -1;
		n = n * 10 + (unsigned)(*text - '0');
	}
	*out = n == 0 || n > 100 ? 100 : n;
	return 0;
}

struct reader {
	const char *(*get)(const char *);
	void (*complain)(const char *, const char *);
};

/* Takes a variable's value where it has one, and complains about nonsense. */
static void read_memory(const struct reader *r, const char *name, uint64_t *out)
{
	const char *text = r->get(name);
	uint64_t bytes;
	if (!text || !*text)
		return;
	if (limits_parse_size(text, &bytes) == 0) {
		if (bytes) /* 0 is as good as unset: the fallback stays */
			*out = bytes;
	} else if (r->complain) {
		r->complain(name, text);
	}
}

static void read_percent(const struct reader *r, const char *name, unsigned *out)
{
	const char *text = r->get(name);
	if (text && *text && parse_percent(text, out) && r->complain)
		r->complain(name, text);
}

static void read_devices(const struct reader *r, struct limits *out)
{
	uint64_t all_memory = 0;
	unsigned all_cores = 100;
	read_memory(r, ENV_MEMORY_LIMIT, &all_memory);
	read_percent(r, ENV_SM_LIMIT, &all_cores);
	for (int i = 0; i < HAMI_DEVICES; i++) {
		struct limits_device *d = &out->device[i];
		char name[64];
		*d = (struct limits_device){.given = 1, .memory = all_memory, .cores = all_cores};
		snprintf(name, sizeof name, "%s_%d", ENV_MEMORY_LIMIT, i);
		read_memory(r, name, &d->memory);
		snprintf(name, sizeof name, "%s_%d", ENV_SM_LIMIT, i);
		read_percent(r, name, &d->cores);
		if (d->memory || d->cores < 100)
			out->source = LIMITS_ENVIRONMENT;
	}
}

void limits_from_environment(const char *(*get)(const char *),
			     void (*complain)(const char *, const char *), struct limits *out)
{
	const struct reader r = {get, complain};
	*out = (struct limits){.source = LIMITS_NONE, .priority = 1, .region = HAMI_REGION_DEFAULT};
	read_devices(&r, out);
	const char *text = get(ENV_REGION);
	if (text && *text == '/' && strlen(text) < sizeof out->region)
		strcpy(out->region, text);
	else if (text && *text && complain)
		complain(ENV_REGION, text);
	text = get(ENV_PRIORITY);
	if (text && *text >= '0' && *text <= '9' && !text[1])
		out->priority = *text - '0';
	text = get(ENV_OVERSUBSCRIBE);
	out->oversubscribe = text && (!strcmp(text, "true") || !strcmp(text, "TRUE"));
	text = get(ENV_POLICY);
	if (text && (!strcmp(text, "force") || !strcmp(text, "FORCE")))
		out->policy = POLICY_FORCE;
	else if (text && (!strcmp(text, "disable") || !strcmp(text, "DISABLE")))
		out->policy = POLICY_DISABLE;
}
