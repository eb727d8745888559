/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_overhead.c: memory that nobody asks for by size. A context takes FAKEGPU_CONTEXT MiB (0 when
 * unset; about 527 on an H200), a library FAKEGPU_LIBRARY MiB in the context that is current when
 * it is loaded, each look-up of a kernel in one FAKEGPU_KERNEL MiB, and cuCtxSetLimit what it is
 * told, in whole pages, in place of what it was told before. Modules take the arrays that their
 * image declares, in whole pages, and libraries take them, too.
 */
#include "cuda_exports.h"
#include "cuda_fake.h"
#include "cuda_mps.h"
#include "cuda_work.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

struct CUlib_st {
	const void *module; /* NULL: it is a library */
	struct CUctx_st *context;
	uint64_t cost;
	struct CUlib_st *next;
};

static struct CUlib_st *libraries; /* under fake.mutex */

static uint64_t mib_of(const char *variable)
{
	const char *text = getenv(variable);
	return text ? strtoull(text, NULL, 10) << 20 : 0;
}

static CUresult add_cost(struct CUctx_st *context, uint64_t bytes)
{
	CUresult r = bytes ? fg_take(context->ordinal, bytes) : CUDA_SUCCESS;
	if (r == CUDA_SUCCESS)
		context->cost += bytes;
	return r;
}

CUresult fg_context_open(struct CUctx_st *context)
{
	CUresult r = fg_mps_contexts(context->ordinal);
	return r == CUDA_SUCCESS ? add_cost(context, mib_of("FAKEGPU_CONTEXT")) : r;
}

void fg_context_close(struct CUctx_st *context)
{
	pthread_mutex_lock(&fake.mutex);
	fg_give(context->ordinal, context->cost);
	context->cost = 0;
	memset(context->limit, 0, sizeof context->limit);
	for (struct CUlib_st *l = libraries; l; l = l->next)
		if (l->context == context)
			l->cost = 0;
	pthread_mutex_unlock(&fake.mutex);
}

/* Bytes of the arrays that an image declares: sections .nv.global and .nv.global.init. */
static uint64_t arrays_of_elf(const unsigned char *image)
{
	const Elf64_Ehdr *head = (const Elf64_Ehdr *)image;
	const Elf64_Shdr *section = (const Elf64_Shdr *)(image + head->e_shoff);
	const char *names = (const char *)image + section[head->e_shstrndx].sh_offset;
	uint64_t bytes = 0;
	for (int i = 0; i < head->e_shnum; i++)
		if (!strncmp(names + section[i].sh_name, ".nv.global", 10))
			bytes += section[i].sh_size;
	return bytes;
}

/* The same of what a program gives: such an image, a container of several, or a text of any kind. */
static uint64_t arrays_of(const unsigned char *image)
{
	static const unsigned char wrapper[] = {0xb1, 0x43, 0x62, 0x46}, container[] = {0x50, 0xed, 0x55, 0xba};
	uint64_t most = 0, bytes, size;
	if (!strncmp((const char *)image, ELFMAG, SELFMAG))
		return arrays_of_elf(image);
	if (!strncmp((const char *)image, (const char *)wrapper, 4))
		return arrays_of(*(const unsigned char *const *)(image + 8));
	if (strncmp((const char *)image, (const char *)container, 4))
		return 0;
	const unsigned char *at = image + *(const uint16_t *)(image + 6), *end = at + *(const uint64_t *)(image + 8);
	for (; at < end; at += *(const uint32_t *)(at + 4) + size) {
		size = *(const uint64_t *)(at + 8);
		bytes = *(const uint16_t *)at == 2 ? arrays_of(at + *(const uint32_t *)(at + 4)) : 0;
		most = bytes > most ? bytes : most;
	}
	return most;
}

static CUresult load(CUlibrary *library, const void *module, uint64_t cost)
{
	struct CUctx_st *context = fg_context();
	struct CUlib_st *l = calloc(1, sizeof *l);
	*l = (struct CUlib_st){.module = module, .context = context, .cost = cost};
	pthread_mutex_lock(&fake.mutex);
	CUresult r = fg_context_lives(context) ? add_cost(context, l->cost) : CUDA_ERROR_INVALID_CONTEXT;
	if (r == CUDA_SUCCESS) {
		l->next = libraries;
		libraries = *library = l;
	}
	pthread_mutex_unlock(&fake.mutex);
	if (r != CUDA_SUCCESS)
		free(l);
	return r;
}

CUresult fg_module_open(const void *module, const void *image)
{
	CUlibrary l;
	return load(&l, module, fg_pages(arrays_of(image)));
}

void fg_module_close(const void *module)
{
	pthread_mutex_lock(&fake.mutex);
	struct CUlib_st *l = libraries;
	while (l && l->module != module)
		l = l->next;
	pthread_mutex_unlock(&fake.mutex);
	if (l)
		cuLibraryUnload(l);
}

static CUresult load_library(CUlibrary *library, const void *image, uint64_t arrays)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!fg_context())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!library || !image)
		return CUDA_ERROR_INVALID_VALUE;
	return load(library, NULL, mib_of("FAKEGPU_LIBRARY") + arrays);
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, int *jit, void **jit_values, unsigned int jit_count,
			   int *options, void **values, unsigned int count)
{
	(void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
	return load_library(library, code, code ? fg_pages(arrays_of(code)) : 0);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, int *jit, void **jit_values, unsigned int jit_count,
			       int *options, void **values, unsigned int count)
{
	(void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
	return load_library(library, path, 0);
}

/* The kernel itself is good for nothing yet. */
CUresult cuLibraryGetKernel(struct CUkern_st **kernel, CUlibrary library, const char *name)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!kernel || !library || !name)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t cost = mib_of("FAKEGPU_KERNEL");
	pthread_mutex_lock(&fake.mutex);
	CUresult r = add_cost(library->context, cost);
	if (r == CUDA_SUCCESS)
		library->cost += cost;
	pthread_mutex_unlock(&fake.mutex);
	*kernel = NULL;
	return r;
}

CUresult cuLibraryUnload(CUlibrary library)
{
	pthread_mutex_lock(&fake.mutex);
	struct CUlib_st **at = &libraries;
	while (*at && *at != library)
		at = &(*at)->next;
	int found = *at != NULL;
	if (found) {
		*at = library->next;
		if (library->cost) {
			fg_give(library->context->ordinal, library->cost);
			library->context->cost -= library->cost;
		}
		free(library);
	}
	pthread_mutex_unlock(&fake.mutex);
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/*
 * What a context has of each when it is made, which is part of its cost: stack of a thread, printf
 * buffer, heap.
 */
static const uint64_t initial[3] = {1 << 10, 1 << 20, 8 << 20};

static uint64_t limit_of(const struct CUctx_st *context, int limit)
{
	return context->limit[limit] ? context->limit[limit] : initial[limit];
}

/* Bytes beyond the context's cost. Every thread that the device can run at once has a stack. */
static uint64_t set_aside(const struct CUctx_st *context, int limit, uint64_t value)
{
	uint64_t each = limit == CU_LIMIT_STACK_SIZE ? (uint64_t)fake.gpu[context->ordinal]->sms * FG_SM_THREADS : 1;
	return value > initial[limit] ? fg_pages(value * each) - fg_pages(initial[limit] * each) : 0;
}

CUresult cuCtxSetLimit(int limit, size_t value)
{
	struct CUctx_st *context = fg_context();
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (limit < 0 || limit > CU_LIMIT_MALLOC_HEAP_SIZE || !value || value > 1ULL << 40)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.mutex);
	uint64_t before = set_aside(context, limit, limit_of(context, limit)), after = set_aside(context, limit, value);
	CUresult r = after > before ? add_cost(context, after - before) : CUDA_SUCCESS;
	if (r == CUDA_SUCCESS)
		context->limit[limit] = value;
	if (after < before) {
		fg_give(context->ordinal, before - after);
		context->cost -= before - after;
	}
	pthread_mutex_unlock(&fake.mutex);
	return r;
}

CUresult cuCtxGetLimit(size_t *value, int limit)
{
	struct CUctx_st *context = fg_context();
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!value || limit < 0 || limit > CU_LIMIT_MALLOC_HEAP_SIZE)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.mutex);
	*value = limit_of(context, limit);
	pthread_mutex_unlock(&fake.mutex);
	return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned int flags, CUdevice device)
{
	return affinity || count ? CUDA_ERROR_NOT_SUPPORTED : cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *context, void *params, unsigned int flags, CUdevice device)
{
	return params ? CUDA_ERROR_NOT_SUPPORTED : cuCtxCreate_v2(context, flags, device);
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
	return cuModuleLoadData(module, path);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, int *options, void **values)
{
	(void)count, (void)options, (void)values;
	return cuModuleLoadData(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	return cuModuleLoadData(module, image);
}
