/* SPDX-License-Identifier: Apache-2.0 */
/* image_test.c: what images say of themselves, damaged ones included. */
#include "testing.h"

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

#include "model/image.h"

static unsigned char memory[8192]; /* all that can be read */

static size_t peek(void *to, uint64_t from, size_t size)
{
	uint64_t base = (uintptr_t)memory;
	if (from < base || from - base >= sizeof memory)
		return 0;
	uint64_t left = sizeof memory - (from - base);
	size_t n = size < left ? size : left;
	memcpy(to, memory + (from - base), n);
	return n;
}

static struct image read_memory(void)
{
	return image_read((uintptr_t)memory, peek);
}

#define SECTIONS 4
#define NAMES "\0.nv.global\0.nv.global.init\0.nv.shared.k"

static uint64_t section_at(uint64_t at, int i)
{
	return at + sizeof(Elf64_Ehdr) + (uint64_t)i * sizeof(Elf64_Shdr);
}

/* An ELF image at an offset of the memory with 100 and 20 bytes of arrays; its size. */
static uint64_t put_elf(uint64_t at)
{
	Elf64_Ehdr head = {.e_machine = 190,
			   .e_shoff = sizeof head,
			   .e_shentsize = sizeof(Elf64_Shdr),
			   .e_shnum = SECTIONS,
			   .e_shstrndx = 0};
	uint64_t names = sizeof head + SECTIONS * sizeof(Elf64_Shdr);
	const Elf64_Shdr sections[SECTIONS] = {
		{.sh_type = SHT_STRTAB, .sh_offset = names, .sh_size = sizeof NAMES},
		{.sh_name = 1, .sh_type = SHT_NOBITS, .sh_size = 100},
		{.sh_name = 12, .sh_type = SHT_PROGBITS, .sh_offset = names, .sh_size = 20},
		{.sh_name = 28, .sh_type = SHT_NOBITS, .sh_size = 4096}};
	memcpy(head.e_ident, ELFMAG, SELFMAG);
	head.e_ident[EI_CLASS] = ELFCLASS64;
	memcpy(memory + at, &head, sizeof head);
	memcpy(memory + section_at(at, 0), sections, sizeof sections);
	memcpy(memory + at + names, NAMES, sizeof NAMES);
	return names + sizeof NAMES;
}

TEST("arrays are the sections .nv.global, and not what each block has on the multiprocessor")
{
	put_elf(0);
	CHECK_EQ(read_memory().arrays, 120);
}

/* Entries of a container: its kind, whether it is compressed. */
static uint64_t put_entry(uint64_t at, uint16_t kind, int packed)
{
	uint64_t bytes = put_elf(at + 64), flags = packed ? 0x2000 : 0, unpacked = 5000;
	uint32_t header = 64;
	memcpy(memory + at, &kind, sizeof kind);
	memcpy(memory + at + 4, &header, sizeof header);
	memcpy(memory + at + 8, &bytes, sizeof bytes);
	memcpy(memory + at + 40, &flags, sizeof flags);
	memcpy(memory + at + 56, &unpacked, sizeof unpacked);
	return at + header + bytes;
}

static void put_container(uint64_t at, uint64_t bytes)
{
	uint32_t magic = 0xba55ed50;
	uint16_t header = 16;
	memcpy(memory + at, &magic, sizeof magic);
	memcpy(memory + at + 6, &header, sizeof header);
	memcpy(memory + at + 8, &bytes, sizeof bytes);
}

TEST("of a container the largest entry counts, also behind a wrapper")
{
	uint64_t end = put_entry(put_entry(put_entry(256 + 16, 1, 0), 2, 0), 2, 1);
	put_container(256, end - 256 - 16);
	uint32_t magic = 0x466243b1;
	uint64_t data = (uintptr_t)memory + 256;
	memcpy(memory, &magic, sizeof magic);
	memcpy(memory + 8, &data, sizeof data);
	CHECK_EQ(read_memory().arrays, 120);
	CHECK_EQ(read_memory().bytes, 5000);
}

TEST("a text has no arrays that are known, and ends where it ends or cannot be read")
{
	memcpy(memory, ".version 8.0", 13);
	CHECK_EQ(read_memory().bytes, 12);
	CHECK_EQ(read_memory().arrays, 0);
	memset(memory, 'x', sizeof memory);
	CHECK_EQ(read_memory().bytes, sizeof memory);
	CHECK_EQ(image_read(1, peek).bytes, 0);
}

/* The sanitizers look at this. */
TEST("damaged images are read without harm and end")
{
	unsigned seed = 1;
	for (int round = 0; round < 20000; round++) {
		uint64_t end = put_entry(put_entry(16, 2, 0), 2, round % 2);
		put_container(0, end - 16);
		if (round % 3 == 0)
			put_elf(0);
		for (int i = 0; i < 1 + round % 8; i++)
			memory[(unsigned)rand_r(&seed) % end] = (unsigned char)rand_r(&seed);
		(void)read_memory();
	}
	CHECK(read_memory().arrays < UINT64_MAX / 2);
}

TEST_MAIN
