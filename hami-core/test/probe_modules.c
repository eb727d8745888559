/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_modules.c: arrays that a program's code declares (`__device__`) are data: they are refused
 * where the module is loaded, like memory that is asked for.
 */
#include "probe.h"

#include <elf.h>
#include <string.h>

#define LIMIT (64 * MIB)
#define EM_CUDA 190

uint64_t fakegpu_used(int ordinal);
CUresult cuModuleUnload(CUmodule);

/* An image for the device with so many bytes of arrays: sections as nvcc makes them. */
static const void *image_with(uint64_t zeroed, uint64_t filled)
{
	static struct {
		Elf64_Ehdr head;
		Elf64_Shdr section[5];
		char names[64];
	} images[8], *e;
	static unsigned next;
	static const char names[] = "\0.shstrtab\0.nv.global\0.nv.global.init\0.nv.shared.k";
	e = &images[next++ % 8];
	memset(e, 0, sizeof *e);
	memcpy(e->head.e_ident, ELFMAG, SELFMAG);
	e->head.e_ident[EI_CLASS] = ELFCLASS64;
	e->head.e_ident[EI_DATA] = ELFDATA2LSB;
	e->head.e_machine = EM_CUDA;
	e->head.e_shoff = sizeof e->head;
	e->head.e_shentsize = sizeof *e->section;
	e->head.e_shnum = 5;
	e->head.e_shstrndx = 1;
	memcpy(e->names, names, sizeof names);
	e->section[1] = (Elf64_Shdr){.sh_name = 1, .sh_type = SHT_STRTAB,
				     .sh_offset = sizeof e->head + sizeof e->section,
				     .sh_size = sizeof names};
	e->section[2] = (Elf64_Shdr){.sh_name = 11, .sh_type = SHT_NOBITS, .sh_size = zeroed,
				     .sh_flags = SHF_ALLOC | SHF_WRITE};
	e->section[3] = (Elf64_Shdr){.sh_name = 22, .sh_type = SHT_NOBITS, .sh_size = filled,
				     .sh_flags = SHF_ALLOC | SHF_WRITE};
	/* of each block of threads, on the multiprocessor */
	e->section[4] = (Elf64_Shdr){.sh_name = 38, .sh_type = SHT_NOBITS, .sh_size = 48 << 10,
				     .sh_flags = SHF_ALLOC | SHF_WRITE};
	return e;
}

/* The wrapper that nvcc's start-up code gives to the runtime, around a container with one image. */
static const void *wrapped(const void *image, uint64_t bytes)
{
	static unsigned char container[4096];
	static struct {
		uint32_t magic, version;
		const void *data;
		void *more;
	} wrapper = {0x466243b1, 1, container, NULL};
	const struct {
		uint32_t magic;
		uint16_t version, header;
		uint64_t size;
	} head = {0xba55ed50, 1, 16, 64 + bytes};
	const struct {
		uint16_t kind, version;
		uint32_t header;
		uint64_t size;
	} entry = {2, 1, 64, bytes};
	memcpy(container, &head, sizeof head);
	memcpy(container + 16, &entry, sizeof entry);
	memcpy(container + 16 + 64, image, bytes);
	return &wrapper;
}

#define IMAGE_BYTES (sizeof(Elf64_Ehdr) + 5 * sizeof(Elf64_Shdr) + 64)

void probe_module_data(void)
{
	CUmodule module, more;
	CUlibrary library;
	use_device(0);
	NEED(cuModuleLoadData(&module, image_with(100 * MIB, 0)) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(fakegpu_used(0) == 0 && left() == LIMIT);
	NEED(!cuModuleLoadData(&module, image_with(19 * MIB, MIB)) && left() == 44 * MIB);
	NEED(cuModuleLoadData(&more, image_with(0, 46 * MIB)) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(!cuModuleLoadData(&more, wrapped(image_with(24 * MIB, 0), IMAGE_BYTES)));
	NEED(left() == 20 * MIB && fakegpu_used(0) == 44 * MIB);
	NEED(cuLibraryLoadData(&library, image_with(22 * MIB, 0), NULL, NULL, 0, NULL, NULL, 0) ==
	     CUDA_ERROR_OUT_OF_MEMORY);
	NEED(!cuLibraryLoadData(&library, image_with(20 * MIB, 0), NULL, NULL, 0, NULL, NULL, 0));
	NEED(left() == 0 && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(!cuLibraryUnload(library) && left() == 20 * MIB);
	NEED(!cuModuleUnload(module) && left() == 40 * MIB);
	/* what is left goes with its context */
	NEED(!cuDevicePrimaryCtxReset_v2(0) && fakegpu_used(0) == 0);
	use_device(0);
	NEED(left() == LIMIT && take(LIMIT) == CUDA_SUCCESS);
}

/* Images that cannot be read: NVML tells afterwards what they took. */
void probe_module_unread(void)
{
	CUlibrary library;
	int loaded = 0;
	setenv("FAKEGPU_LIBRARY", "100", 1);
	setenv("FAKEGPU_CONTEXT", "2", 1);
	use_device(0);
	for (int i = 0; i < 9; i++)
		loaded += !cuLibraryLoadData(&library, "x", NULL, NULL, 0, NULL, NULL, 0);
	NEED(loaded == 0 && fakegpu_used(0) == 2 * MIB && left() == LIMIT - 2 * MIB);
}
