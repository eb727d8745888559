/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_vmm.c: physical handles and mappings. Memory goes back when the last handle
 * is released and the last mapping is gone, in whatever order. A shareable handle is a
 * file that says what memory it stands for; that it outlives its exporter is not modelled.
 * A range that cuts a mapping leaves that one as it is; with FAKEGPU_UNMAP=cut it unmaps all of it, with "refuse"
 * nothing is unmapped.
 */
#define _GNU_SOURCE
#include "cuda_exports.h"
#include "cuda_fake.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct physical {
	CUmemGenericAllocationHandle id;
	uint64_t size;
	CUmemLocation location;
	int ordinal, references, mappings; /* ordinal -1: it takes nothing of a device: the host's, or imported */
	struct physical *next;
};

struct mapping {
	CUdeviceptr at;
	uint64_t size;
	struct physical *of;
	struct mapping *next;
};

static struct physical *handles; /* under fake.mutex, like all below */
static struct mapping *mappings;
static CUmemGenericAllocationHandle next_handle = 1;
static uint64_t next_address = 0x7a0000000000ULL;

static struct physical *find(CUmemGenericAllocationHandle id)
{
	struct physical *p = handles;
	while (p && p->id != id)
		p = p->next;
	return p && p->references > 0 ? p : NULL;
}

static CUmemGenericAllocationHandle add(struct physical *p)
{
	p->id = next_handle++;
	p->next = handles;
	handles = p;
	return p->id;
}

static void drop_if_unused(struct physical *p)
{
	if (p->references || p->mappings)
		return;
	struct physical **at = &handles;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	if (p->ordinal >= 0)
		fg_give(p->ordinal, p->size);
	free(p);
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop, int option)
{
	(void)option;
	if (!bytes || !prop)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = FG_PAGE;
	return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
		     unsigned long long flags)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!handle || !prop || flags || !bytes || bytes % FG_PAGE || prop->type != 1)
		return CUDA_ERROR_INVALID_VALUE;
	int host = prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && fg_generation >= 12000;
	int ordinal = host ? -1 : fg_ordinal_of(prop->location);
	if (!host && !fg_gpu(ordinal))
		return CUDA_ERROR_INVALID_VALUE;
	struct physical *p = calloc(1, sizeof *p);
	*p = (struct physical){.size = bytes, .location = prop->location, .ordinal = ordinal, .references = 1};
	pthread_mutex_lock(&fake.mutex);
	CUresult r = fg_injected("cuMemCreate");
	if (r == CUDA_SUCCESS && !host)
		r = fg_take(p->ordinal, bytes);
	if (r == CUDA_SUCCESS)
		*handle = add(p);
	pthread_mutex_unlock(&fake.mutex);
	if (r != CUDA_SUCCESS)
		free(p);
	return r;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	pthread_mutex_lock(&fake.mutex);
	struct physical *p = find(handle);
	if (p && prop)
		*prop = (CUmemAllocationProp){.type = 1, .location = p->location};
	pthread_mutex_unlock(&fake.mutex);
	return p && prop ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct shared_memory {
	uint64_t size;
	CUmemLocation location;
};

CUresult cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle, int type, unsigned long long flags)
{
	struct shared_memory m = {.size = 0};
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	pthread_mutex_lock(&fake.mutex);
	struct physical *p = find(handle);
	if (p)
		m = (struct shared_memory){p->size, p->location};
	pthread_mutex_unlock(&fake.mutex);
	if (!p || !shared || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	int fd = memfd_create("fakegpu-memory", MFD_CLOEXEC);
	if (fd < 0 || pwrite(fd, &m, sizeof m, 0) != sizeof m)
		return CUDA_ERROR_UNKNOWN;
	*(int *)shared = fd;
	return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared, int type)
{
	struct shared_memory m;
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || pread((int)(intptr_t)shared, &m, sizeof m, 0) != sizeof m)
		return CUDA_ERROR_INVALID_VALUE;
	struct physical *p = calloc(1, sizeof *p);
	*p = (struct physical){.size = m.size, .location = m.location, .ordinal = -1, .references = 1};
	pthread_mutex_lock(&fake.mutex);
	*handle = add(p);
	pthread_mutex_unlock(&fake.mutex);
	return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	pthread_mutex_lock(&fake.mutex);
	struct physical *p = find(handle);
	if (p) {
		p->references--;
		drop_if_unused(p);
	}
	pthread_mutex_unlock(&fake.mutex);
	return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	pthread_mutex_lock(&fake.mutex);
	struct mapping *m = mappings;
	while (m && ((CUdeviceptr)address < m->at || (CUdeviceptr)address >= m->at + m->size))
		m = m->next;
	if (m && handle) {
		m->of->references++;
		*handle = m->of->id;
	}
	pthread_mutex_unlock(&fake.mutex);
	return m && handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr hint,
			     unsigned long long flags)
{
	(void)alignment, (void)hint;
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!pointer || !bytes || bytes % FG_PAGE || flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.mutex);
	*pointer = next_address;
	next_address += bytes + FG_PAGE;
	pthread_mutex_unlock(&fake.mutex);
	return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
	return pointer && bytes ? fg_ready() : CUDA_ERROR_INVALID_VALUE;
}

static int is_touched(const struct mapping *m, CUdeviceptr pointer, size_t bytes)
{
	return m->at < pointer + bytes && m->at + m->size > pointer;
}

/* Whether something is mapped in a range (under fake.mutex). */
static int is_any_touched(CUdeviceptr pointer, size_t bytes)
{
	const struct mapping *m = mappings;
	while (m && !is_touched(m, pointer, bytes))
		m = m->next;
	return m != NULL;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!pointer || !bytes || offset || flags)
		return CUDA_ERROR_INVALID_VALUE;
	struct mapping *m = calloc(1, sizeof *m);
	pthread_mutex_lock(&fake.mutex);
	struct physical *p = find(handle);
	int ok = p && bytes <= p->size && !is_any_touched(pointer, bytes);
	if (ok) {
		*m = (struct mapping){.at = pointer, .size = bytes, .of = p, .next = mappings};
		mappings = m;
		p->mappings++;
	}
	pthread_mutex_unlock(&fake.mutex);
	if (!ok)
		free(m);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct physical *fg_handle_map(CUmemGenericAllocationHandle handle)
{
	struct physical *p = find(handle);
	if (p)
		p->mappings++;
	return p;
}

void fg_handle_unmap(struct physical *of)
{
	of->mappings--;
	drop_if_unused(of);
}

static int is_within(const struct mapping *m, CUdeviceptr pointer, size_t bytes)
{
	return m->at >= pointer && m->at + m->size <= pointer + bytes;
}

/* Whether some mapping lies in a range in part (under fake.mutex). */
static int cuts_a_mapping(CUdeviceptr pointer, size_t bytes)
{
	for (const struct mapping *m = mappings; m; m = m->next)
		if (is_touched(m, pointer, bytes) && !is_within(m, pointer, bytes))
			return 1;
	return 0;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
	const char *how = getenv("FAKEGPU_UNMAP");
	int cut = how && !strcmp(how, "cut"), refuse = how && !strcmp(how, "refuse");
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	int found = 0;
	pthread_mutex_lock(&fake.mutex);
	int refused = refuse && cuts_a_mapping(pointer, bytes);
	for (struct mapping **at = &mappings; *at && !refused;) {
		struct mapping *m = *at;
		if (!(cut ? is_touched : is_within)(m, pointer, bytes)) {
			at = &m->next;
			continue;
		}
		*at = m->next;
		fg_handle_unmap(m->of);
		free(m);
		found = 1;
	}
	pthread_mutex_unlock(&fake.mutex);
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
