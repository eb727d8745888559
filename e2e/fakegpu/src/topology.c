/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "topology.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *fg_dir(void)
{
	const char *dir = getenv("FAKEGPU_DIR");
	return dir && *dir ? dir : "/run/fakegpu";
}

int fg_gpu_visible(const struct fg_gpu *gpu)
{
	const char *dev = getenv("FAKEGPU_DEV");
	char path[512];
	struct stat st;
	snprintf(path, sizeof path, "%s/nvidia%d", dev && *dev ? dev : "/dev", gpu->minor);
	return stat(path, &st) == 0 && S_ISCHR(st.st_mode);
}

/* Two FNV-1a hashes of the seed. */
void fg_uuid(char *out, const char *prefix, const char *seed)
{
	uint64_t h[2] = {14695981039346656037ULL, 1099511628211ULL ^ 0x9e3779b97f4a7c15ULL};
	for (int k = 0; k < 2; k++)
		for (const char *c = seed; *c; c++)
			h[k] = (h[k] ^ (unsigned char)*c) * 1099511628211ULL;
	snprintf(out, 48, "%s%08x-%04x-%04x-%04x-%012llx", prefix, (unsigned)(h[0] >> 32), (unsigned)(h[0] >> 16) & 0xffff,
		 (unsigned)h[0] & 0xffff, (unsigned)(h[1] >> 48), (unsigned long long)(h[1] & 0xffffffffffffULL));
}

/* For a GPU without one: of index and model. */
static void derive_uuid(struct fg_gpu *gpu)
{
	char seed[128];
	snprintf(seed, sizeof seed, "%d/%s", gpu->minor, gpu->model);
	fg_uuid(gpu->uuid, "GPU-", seed);
}

static int parse_memory(const char *v, uint64_t *out)
{
	char *end;
	errno = 0;
	unsigned long long n = strtoull(v, &end, 10);
	if (errno || end == v || *v == '-')
		return -1;
	uint64_t unit = !strcmp(end, "MiB") ? 1ULL << 20 : !strcmp(end, "GiB") ? 1ULL << 30 : 0;
	if (!unit || n == 0 || n > (1ULL << 50) / unit)
		return -1;
	*out = n * unit;
	return 0;
}

static int valid_uuid(const char *v)
{
	static const char form[] = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
	if (strlen(v) != sizeof form - 1)
		return 0;
	for (size_t i = 0; form[i]; i++)
		if (form[i] == 'x' ? !strchr("0123456789abcdefABCDEF", v[i]) : v[i] != form[i])
			return 0;
	return 1;
}

int fg_licence_parse(const char *text, int64_t *out)
{
	char *end;
	if (!strcmp(text, "none"))
		return *out = FG_LICENCE_NONE, 0;
	if (!strcmp(text, "ok"))
		return *out = FG_LICENCE_OK, 0;
	long long at = strtoll(text, &end, 10);
	if (end == text || *end || at <= 0 || at >= 253402300800LL) /* the year 10000 */
		return -1;
	*out = at;
	return 0;
}

/* The place of a word among several, or -1. */
static int find_word(const char *v, const char *const *words, int count)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(v, words[i]))
			return i;
	return -1;
}

static int set_key(struct fg_gpu *g, const char *key, const char *v)
{
	char rest;
	if (!strcmp(key, "model"))
		return *v && strlen(v) < sizeof g->model ? (strcpy(g->model, v), 0) : -1;
	if (!strcmp(key, "uuid"))
		return valid_uuid(v) ? (strcpy(g->uuid, v), 0) : -1;
	if (!strcmp(key, "memory"))
		return parse_memory(v, &g->memory);
	if (!strcmp(key, "cc"))
		return sscanf(v, "%d.%d%c", &g->cc_major, &g->cc_minor, &rest) == 2 ? 0 : -1;
	if (!strcmp(key, "numa"))
		return sscanf(v, "%d%c", &g->numa, &rest) == 1 && g->numa >= -1 && g->numa < 64 ? 0 : -1;
	if (!strcmp(key, "sms"))
		return sscanf(v, "%d%c", &g->sms, &rest) == 1 && g->sms > 0 ? 0 : -1;
	if (!strcmp(key, "pci"))
		return sscanf(v, "%x:%x:%x.0%c", &g->domain, &g->bus, &g->slot, &rest) == 3 ? 0 : -1;
	if (!strcmp(key, "nvlink"))
		return strlen(v) < sizeof g->nvlink ? (strcpy(g->nvlink, v), 0) : -1;
	if (!strcmp(key, "licence"))
		return fg_licence_parse(v, &g->licence);
	if (!strcmp(key, "mig")) {
		static const char *const words[] = {"none", "capable", "enabled"};
		int i = find_word(v, words, 3);
		return i < 0 ? -1 : (g->mig = (enum fg_mig)i, 0);
	}
	if (!strcmp(key, "virtual")) {
		static const char *const words[] = {"none", "passthrough", "vgpu"};
		int i = find_word(v, words, 3);
		return i < 0 ? -1 : (g->virt = FG_VIRTUAL_NONE + (enum fg_virtual)i, 0);
	}
	return -1;
}

/* Splits one `key=value` or `key="va lue"` off *cursor. 1 = got one, 0 = end of line, -1 = malformed. */
static int next_pair(char **cursor, char **key, char **value)
{
	char *p = *cursor + strspn(*cursor, " \t\r");
	if (!*p || *p == '#')
		return 0;
	char *eq = strchr(p, '=');
	if (!eq)
		return -1;
	*eq = 0;
	*key = p;
	char *v = eq + 1, *end;
	if (*v == '"') {
		v++;
		end = strchr(v, '"');
		if (!end)
			return -1;
	} else {
		end = v + strcspn(v, " \t\r");
	}
	*cursor = *end ? end + 1 : end;
	*end = 0;
	*value = v;
	return 1;
}

static int parse_gpu(char *line, struct fg_topology *t, char *why, size_t size)
{
	if (t->count == FG_MAX_DEVICES)
		return snprintf(why, size, "more than %d gpu lines", FG_MAX_DEVICES), -1;
	struct fg_gpu *g = &t->gpu[t->count];
	*g = (struct fg_gpu){.minor = t->count, .numa = -1, .sms = 100, .cc_major = 8, .bus = 0xffffffff};
	char *key, *value;
	int r;
	while ((r = next_pair(&line, &key, &value)) == 1)
		if (set_key(g, key, value))
			return snprintf(why, size, "bad %.32s=%.64s", key, value), -1;
	if (r < 0)
		return snprintf(why, size, "want key=value, got %.64s", line), -1;
	if (!*g->model || !g->memory)
		return snprintf(why, size, "gpu needs model= and memory="), -1;
	if (g->virt == FG_VIRTUAL_VGPU && g->mig == FG_MIG_CAPABLE)
		return snprintf(why, size, "a vGPU is cut on its host: want mig=none or mig=enabled"), -1;
	if (g->virt != FG_VIRTUAL_VGPU && g->licence)
		return snprintf(why, size, "licence= is of virtual=vgpu"), -1;
	if (g->bus == 0xffffffff)
		g->bus = (unsigned)t->count + 1;
	if (!*g->uuid)
		derive_uuid(g);
	for (int i = 0; i < t->count; i++) {
		if (!strcmp(t->gpu[i].uuid, g->uuid))
			return snprintf(why, size, "uuid %s is given twice", g->uuid), -1;
		if (t->gpu[i].domain == g->domain && t->gpu[i].bus == g->bus && t->gpu[i].slot == g->slot)
			return snprintf(why, size, "pci address is given twice"), -1;
	}
	t->count++;
	return 0;
}

static int parse_line(char *line, int number, struct fg_topology *t, char *why, size_t size)
{
	line += strspn(line, " \t\r");
	if (number == 1) {
		int version = 0;
		if (sscanf(line, "fakegpu %d", &version) != 1 || version != 1)
			return snprintf(why, size, "want first line: fakegpu 1"), -1;
		return 0;
	}
	if (!*line || *line == '#')
		return 0;
	if (!strncmp(line, "driver ", 7)) {
		if (sscanf(line, "driver %31s cuda %d.%d", t->driver, &t->cuda_major, &t->cuda_minor) != 3)
			return snprintf(why, size, "want: driver <version> cuda <major>.<minor>"), -1;
		return 0;
	}
	if (!strncmp(line, "gpu ", 4))
		return parse_gpu(line + 4, t, why, size);
	return snprintf(why, size, "unknown line: %.40s", line), -1;
}

int fg_topology_parse(const char *name, char *text, struct fg_topology *out, char *error, size_t size)
{
	memset(out, 0, sizeof *out);
	strcpy(out->driver, "580.95.05");
	out->cuda_major = 13;
	int number = 0;
	char *line;
	while ((line = strsep(&text, "\n")) != NULL) {
		char why[256];
		if (parse_line(line, ++number, out, why, sizeof why)) {
			snprintf(error, size, "%s:%d: %s", name, number, why);
			return -1;
		}
	}
	return 0;
}

int fg_topology_read(const char *dir, struct fg_topology *out, char *error, size_t size)
{
	char path[512], text[16384];
	snprintf(path, sizeof path, "%s/topology", dir);
	FILE *f = fopen(path, "re");
	if (!f)
		return snprintf(error, size, "%s: %s", path, strerror(errno)), -1;
	size_t n = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	if (n == sizeof text - 1)
		return snprintf(error, size, "%s: longer than %zu bytes", path, sizeof text - 2), -1;
	text[n] = 0;
	return fg_topology_parse(path, text, out, error, size);
}
