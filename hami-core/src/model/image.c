/* SPDX-License-Identifier: Apache-2.0 */
#include "model/image.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define EM_CUDA 190
#define WRAPPER_MAGIC 0x466243b1u
#define CONTAINER_MAGIC 0xba55ed50u
#define KIND_ELF 2           /* of an entry in a container */
#define COMPRESSED 0x2000    /* a flag of it */
#define ENTRIES_MOST 4096    /* so that a damaged container ends */
#define TABLE_MOST (64 << 20) /* bytes of a table of sections or names */
#define TEXT_MOST (64 << 20)
#define MEMORY_PAGE 4096 /* of the host; a piece of a larger one does as well */

typedef size_t peek_function(void *to, uint64_t from, size_t size);

struct container {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t bytes; /* of all entries */
};

struct entry {
	uint16_t kind, version;
	uint32_t header_bytes;
	uint64_t bytes;
	uint32_t compressed_bytes, unknown;
	uint16_t minor, major;
	uint32_t architecture, name_at, name_bytes;
	uint64_t flags, unused, unpacked_bytes;
};

/* A copy of a table, which the caller frees; NULL: it is not all there. */
static void *copy_table(uint64_t at, uint64_t bytes, peek_function *peek)
{
	void *copy = bytes && bytes <= TABLE_MOST ? malloc(bytes + 1) : NULL;
	if (copy && peek(copy, at, bytes) != bytes) {
		free(copy);
		return NULL;
	}
	if (copy)
		((char *)copy)[bytes] = 0; /* of names, the last one ends here at the latest */
	return copy;
}

static struct image add_sections(const Elf64_Shdr *section, unsigned count, const char *names,
				 uint64_t names_bytes)
{
	struct image image = {0};
	for (unsigned i = 0; i < count; i++) {
		const Elf64_Shdr *s = &section[i];
		uint64_t end = s->sh_type == SHT_NOBITS ? 0 : s->sh_offset + s->sh_size;
		image.bytes = end > image.bytes && end >= s->sh_size ? end : image.bytes;
		/* also .nv.global.init; .nv.shared is each block's, on the multiprocessor */
		if (s->sh_name < names_bytes && !strncmp(names + s->sh_name, ".nv.global", 10) &&
		    s->sh_size < UINT64_MAX / 2 - image.arrays)
			image.arrays += s->sh_size;
	}
	return image;
}

static struct image read_elf(uint64_t at, peek_function *peek)
{
	Elf64_Ehdr head;
	struct image image = {0};
	if (peek(&head, at, sizeof head) != sizeof head || memcmp(head.e_ident, ELFMAG, SELFMAG) ||
	    head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_machine != EM_CUDA ||
	    head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shstrndx >= head.e_shnum)
		return image;
	Elf64_Shdr *section = copy_table(at + head.e_shoff, head.e_shnum * sizeof *section, peek);
	if (!section)
		return image;
	const Elf64_Shdr *text = &section[head.e_shstrndx];
	char *names = copy_table(at + text->sh_offset, text->sh_size, peek);
	if (names)
		image = add_sections(section, head.e_shnum, names, text->sh_size);
	free(names);
	free(section);
	return image;
}

/* The driver loads one of the entries: the largest is meant. */
static struct image read_container(uint64_t at, peek_function *peek)
{
	struct container head;
	struct entry e;
	struct image most = {0};
	if (peek(&head, at, sizeof head) != sizeof head || head.bytes > UINT64_MAX / 2)
		return most;
	uint64_t next = at + head.header_bytes, end = next + head.bytes;
	for (int i = 0; i < ENTRIES_MOST && next < end && end - next >= sizeof e; i++) {
		if (peek(&e, next, sizeof e) != sizeof e || e.header_bytes < sizeof e ||
		    e.bytes > end - next)
			break;
		int packed = (e.flags & COMPRESSED) != 0;
		uint64_t bytes = packed && e.unpacked_bytes > e.bytes ? e.unpacked_bytes : e.bytes;
		struct image image = {0};
		if (e.kind == KIND_ELF && !packed)
			image = read_elf(next + e.header_bytes, peek);
		most.bytes = bytes > most.bytes ? bytes : most.bytes;
		most.arrays = image.arrays > most.arrays ? image.arrays : most.arrays;
		next += e.header_bytes + e.bytes;
	}
	return most;
}

/* Up to its end, which may be the end of what can be read: page by page. */
static struct image read_text(uint64_t at, peek_function *peek)
{
	char piece[MEMORY_PAGE];
	struct image image = {0};
	while (image.bytes < TEXT_MOST) {
		size_t size = sizeof piece - (at + image.bytes) % sizeof piece;
		size_t n = peek(piece, at + image.bytes, size), text = strnlen(piece, n);
		image.bytes += text;
		if (text < size)
			break;
	}
	return image;
}

struct image image_read(uint64_t at, size_t (*peek)(void *to, uint64_t from, size_t size))
{
	uint32_t magic = 0;
	uint64_t within = 0;
	if (peek(&magic, at, sizeof magic) == sizeof magic && magic == WRAPPER_MAGIC) {
		if (peek(&within, at + 8, sizeof within) != sizeof within)
			return (struct image){0};
		at = within;
		magic = 0;
		(void)peek(&magic, at, sizeof magic);
	}
	if (magic == CONTAINER_MAGIC)
		return read_container(at, peek);
	if (!memcmp(&magic, ELFMAG, SELFMAG))
		return read_elf(at, peek);
	return read_text(at, peek);
}
