/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prim_elf.c: looking into loaded objects without dlsym. We define dlsym ourselves, so
 * that the real one has to be found in the C library's own symbol table. Runs very
 * early in a process (see lookup.c): no call into the C library but dl_iterate_phdr, and at the
 * very first not even that, since a sanitizer that is not ready yet may stand in front of it.
 */
#define _GNU_SOURCE
#include "platform/prim.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>

static int is_same_text(const char *a, const char *b)
{
	for (; *a && *a == *b; a++, b++)
		;
	return *a == *b;
}

static int has_prefix(const char *text, const char *prefix)
{
	for (; *prefix && *text == *prefix; text++, prefix++)
		;
	return !*prefix;
}

/* The dynamic section of one object, as far as a look-up needs it. */
struct tables {
	ElfW(Addr) base;
	const ElfW(Sym) *symbols;
	const char *strings;
	const uint32_t *gnu_hash;
	const uint32_t *hash;
};

/*
 * glibc relocates these pointers in memory on most machines; where it does not, they are offsets.
 */
static const void *absolute_address(ElfW(Addr) base, ElfW(Addr) value)
{
	return (const void *)(value < base ? value + base : value);
}

static int read_tables(ElfW(Addr) base, const ElfW(Dyn) *d, struct tables *t)
{
	*t = (struct tables){.base = base};
	for (; d->d_tag != DT_NULL; d++) {
		const void *p = absolute_address(base, d->d_un.d_ptr);
		switch (d->d_tag) {
		case DT_SYMTAB: t->symbols = p; break;
		case DT_STRTAB: t->strings = p; break;
		case DT_GNU_HASH: t->gnu_hash = p; break;
		case DT_HASH: t->hash = p; break;
		}
	}
	return t->symbols && t->strings && (t->gnu_hash || t->hash);
}

static void *defined_function(const struct tables *t, uint32_t i, const char *name)
{
	const ElfW(Sym) *s = &t->symbols[i];
	if (s->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(s->st_info) != STT_FUNC ||
	    !is_same_text(t->strings + s->st_name, name))
		return NULL;
	return (void *)(t->base + s->st_value);
}

/* DT_GNU_HASH: {buckets, first symbol, bloom words, bloom shift}, bloom, buckets, chains. */
static void *find_gnu(const struct tables *t, const char *name)
{
	uint32_t h = 5381;
	for (const char *p = name; *p; p++)
		h = h * 33 + (unsigned char)*p;
	uint32_t count = t->gnu_hash[0], first = t->gnu_hash[1], bloom = t->gnu_hash[2];
	const uint32_t *buckets = t->gnu_hash + 4 + bloom * (sizeof(ElfW(Addr)) / 4);
	const uint32_t *chains = buckets + count;
	uint32_t i = count ? buckets[h % count] : 0;
	if (i < first)
		return NULL;
	for (;; i++) {
		void *at = (chains[i - first] | 1) == (h | 1) ? defined_function(t, i, name) : NULL;
		if (at || (chains[i - first] & 1))
			return at;
	}
}

/*
 * DT_HASH: {buckets, symbols}: looked through in order, since old libraries are the only ones
 * without the other.
 */
static void *find_plain(const struct tables *t, const char *name)
{
	void *at = NULL;
	for (uint32_t i = 0; i < t->hash[1] && !at; i++)
		at = defined_function(t, i, name);
	return at;
}

static const char *file_name(const char *path)
{
	const char *name = path;
	for (; *path; path++)
		if (*path == '/')
			name = path + 1;
	return name;
}

struct symbol_search {
	const char *const *prefixes;
	const char *name;
	void *found;
};

/* The function in one object, if that is among those to look in. */
static void *find_in_object(const struct symbol_search *s, const char *path, ElfW(Addr) base,
			    const ElfW(Dyn) *dynamic)
{
	struct tables t;
	for (const char *const *p = s->prefixes; *p; p++)
		if (has_prefix(file_name(path), *p) && read_tables(base, dynamic, &t))
			return t.gnu_hash ? find_gnu(&t, s->name) : find_plain(&t, s->name);
	return NULL;
}

static int search_object(struct dl_phdr_info *info, size_t size, void *data)
{
	struct symbol_search *s = data;
	(void)size;
	for (int i = 0; i < info->dlpi_phnum && !s->found; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			s->found = find_in_object(
				s, info->dlpi_name, info->dlpi_addr,
				(const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr));
	return s->found != NULL;
}

void *prim_symbol(const char *const *prefixes, const char *name)
{
	struct symbol_search s = {prefixes, name, NULL};
	dl_iterate_phdr(search_object, &s);
	return s.found;
}

/* Looks into one file alone. */
struct file_search {
	struct symbol_search symbol;
	int loaded;
};

static int search_file(struct dl_phdr_info *info, size_t size, void *data)
{
	struct file_search *s = data;
	if (!is_same_text(file_name(info->dlpi_name), s->symbol.prefixes[0]))
		return 0;
	s->loaded = 1;
	return search_object(info, size, &s->symbol);
}

int prim_symbol_in(const char *file, const char *name, void **out)
{
	const char *const files[] = {file, NULL};
	struct file_search s = {{files, name, NULL}, 0};
	dl_iterate_phdr(search_file, &s);
	*out = s.symbol.found;
	return s.loaded;
}

int prim_is_nvidia_path(const char *path)
{
	const char *name = file_name(path);
	return has_prefix(name, "libcuda.so") || has_prefix(name, "libnvidia-") ||
	       has_prefix(name, "libcudadebugger.so");
}

/*
 * The dynamic linker's own list of what is loaded, for debuggers. Weak: it is no part of the C
 * library proper.
 */
extern struct r_debug _r_debug __attribute__((weak));

void *prim_symbol_early(const char *const *prefixes, const char *name)
{
	struct symbol_search s = {prefixes, name, NULL};
	int ours = 0;
	if (!&_r_debug)
		return prim_symbol(prefixes, name);
	for (const struct link_map *l = _r_debug.r_map; l; l = l->l_next) {
		ours |= l->l_ld == _DYNAMIC;
		if (!s.found)
			s.found = find_in_object(&s, l->l_name, l->l_addr, l->l_ld);
	}
	/* Else: in a namespace of our own, later than the start */
	return ours ? s.found : prim_symbol(prefixes, name);
}

/*
 * dl_iterate_phdr of the C library itself: while libraries are started a sanitizer that is not
 * ready may stand in front of it.
 */
static void iterate_objects(int (*tell)(struct dl_phdr_info *, size_t, void *), void *data)
{
	static const char *const libc[] = {"libc.so.", "libc-", NULL};
	static int (*real)(int (*)(struct dl_phdr_info *, size_t, void *), void *);
	if (!__atomic_load_n(&real, __ATOMIC_RELAXED)) {
		void *found = prim_symbol_early(libc, "dl_iterate_phdr");
		__atomic_store_n(&real, found ? found : dl_iterate_phdr, __ATOMIC_RELAXED);
	}
	__atomic_load_n(&real, __ATOMIC_RELAXED)(tell, data);
}

/* Called while the list cannot change; once, whatever object it is called for. */
static int search_list(struct dl_phdr_info *info, size_t size, void *listed)
{
	(void)info, (void)size;
	for (const struct link_map *l = _r_debug.r_map; l; l = l->l_next)
		*(int *)listed |= l->l_ld == _DYNAMIC;
	return 1;
}

int prim_in_main_namespace(void)
{
	static int known; /* 0: not asked yet; else 1 + the answer */
	int answer = __atomic_load_n(&known, __ATOMIC_RELAXED), listed = !&_r_debug;
	if (answer)
		return answer - 1;
	if (!listed)
		dl_iterate_phdr(search_list, &listed);
	__atomic_store_n(&known, 1 + listed, __ATOMIC_RELAXED);
	return listed;
}

/* The object around an address: its path as it was loaded, and the name that it gives itself. */
struct owner {
	ElfW(Addr) address;
	int found;
	const char *path, *soname; /* soname: NULL without one */
};

static const char *soname_of(ElfW(Addr) base, const ElfW(Dyn) *dynamic)
{
	const char *strings = NULL;
	for (const ElfW(Dyn) *d = dynamic; d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_STRTAB)
			strings = absolute_address(base, d->d_un.d_ptr);
	for (const ElfW(Dyn) *d = dynamic; strings && d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_SONAME)
			return strings + d->d_un.d_val;
	return NULL;
}

static int object_contains(const struct dl_phdr_info *info, ElfW(Addr) address)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		ElfW(Addr) start = info->dlpi_addr + p->p_vaddr;
		if (p->p_type == PT_LOAD && address >= start && address < start + p->p_memsz)
			return 1;
	}
	return 0;
}

static int search_owner(struct dl_phdr_info *info, size_t size, void *data)
{
	struct owner *o = data;
	(void)size;
	if (!object_contains(info, o->address))
		return 0;
	o->found = 1;
	o->path = info->dlpi_name;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		const void *at = (const void *)(info->dlpi_addr + p->p_vaddr);
		if (p->p_type == PT_DYNAMIC)
			o->soname = soname_of(info->dlpi_addr, at);
	}
	return 1;
}

static struct owner owner_of(const void *address)
{
	struct owner o = {(ElfW(Addr))address, 0, NULL, NULL};
	iterate_objects(search_owner, &o);
	return o;
}

int prim_is_nvidia(const void *address)
{
	struct owner o = owner_of(address);
	return o.found && prim_is_nvidia_path(o.path);
}

int prim_is_driver(const void *address)
{
	struct owner o = owner_of(address);
	return !o.found || prim_is_nvidia_path(o.path) ||
	       (o.soname && (prim_is_nvidia_path(o.soname) || has_prefix(o.soname, "libvgpu.so")));
}

int prim_stands_in(void)
{
	struct owner o = owner_of(prim_own_path);
	return o.found && o.soname && prim_is_nvidia_path(o.soname);
}

const char *prim_own_path(void)
{
	struct owner o = owner_of(prim_own_path);
	return o.found && *o.path ? o.path : NULL;
}

static unsigned at_start; /* how many objects the loader's list began with; 0: not known */

void prim_note_start(void)
{
	unsigned n = 0;
	int ours = 0;
	for (const struct link_map *l = &_r_debug ? _r_debug.r_map : NULL; l; l = l->l_next, n++)
		ours |= l->l_ld == _DYNAMIC;
	at_start = ours ? n : 0;
}

int prim_is_program(const void *handle)
{
	return &_r_debug && handle == _r_debug.r_map;
}

struct definition_search {
	struct symbol_search symbol;
	ElfW(Addr) caller; /* looked for first; 0: it has been passed */
	unsigned number;   /* of the next object */
	int late;          /* the caller was loaded later than at the start */
};

static int search_definition(struct dl_phdr_info *info, size_t size, void *data)
{
	struct definition_search *s = data;
	unsigned number = s->number++;
	if (s->caller) {
		if (object_contains(info, s->caller)) {
			s->late = number >= at_start;
			s->caller = 0;
		}
		return 0;
	}
	if (at_start && number >= at_start && !s->late)
		return 1;
	if (object_contains(info, (ElfW(Addr))prim_own_path))
		return 0;
	return search_object(info, size, &s->symbol);
}

void *prim_definition(const void *caller, const char *name)
{
	static const char *const any[] = {"", NULL};
	struct definition_search s = {{any, name, NULL}, (ElfW(Addr))caller, 0, 0};
	iterate_objects(search_definition, &s);
	return s.symbol.found;
}

/* The object around an address, and a function in it. */
struct object_search {
	struct symbol_search symbol;
	ElfW(Addr) address;
	unsigned number, found_at; /* of the next object; 1 + that of the object; 0: not met */
};

static int search_around(struct dl_phdr_info *info, size_t size, void *data)
{
	struct object_search *s = data;
	unsigned number = ++s->number;
	if (!object_contains(info, s->address))
		return 0;
	s->found_at = number;
	search_object(info, size, &s->symbol);
	return 1;
}

static struct object_search search_object_of(const void *address, const char *name)
{
	static const char *const any[] = {"", NULL};
	struct object_search s = {{any, name, NULL}, (ElfW(Addr))address, 0, 0};
	iterate_objects(search_around, &s);
	return s;
}

int prim_object_lacks(const void *address, const char *name)
{
	struct object_search s = search_object_of(address, name);
	return s.found_at && !s.symbol.found;
}

int prim_is_late(const void *address)
{
	unsigned number = search_object_of(address, "").found_at;
	return !at_start || !number || number > at_start;
}
