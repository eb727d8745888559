/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handles.c: physical memory and who keeps it: references to its handle, and uses, which are
 * mappings, tiles of sparse arrays, and calls under way.
 *
 * The driver may give a handle's number to other memory at once. The memory that had it before
 * loses it then, with all its references, and lives on as long as it is used.
 */
#include "memory/handles.h"

#include <pthread.h>
#include <stdlib.h>

#include "driver/resolve.h"
#include "memory/mappings.h"
#include "model/location.h"
#include "model/table.h"
#include "settings/settings.h"
#include "shm/region.h"

struct physical {
	uint64_t handle;
	int device;      /* index in the limits */
	int named;       /* found in the table by its handle */
	int imported;    /* another process made it, and pays for it */
	uint64_t size;   /* charged; of imported memory 0 */
	long references, uses;
	int waits; /* it was unmapped from an address by which a call was looking for memory */
	struct physical *next; /* among those that wait or are credited */
};

static struct {
	pthread_mutex_t mutex; /* before the table's; the region's is not taken under it */
	struct mapping *mapped;
	struct handle_retain *retaining; /* calls under way */
	struct physical *waiting;        /* unused, but one of them may have found it */
} handles = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* The memory that a handle stands for (needs the mutex). */
static struct physical *find_physical(uint64_t handle)
{
	struct table_entry e;
	return table_get(TABLE_HANDLE, handle, &e) ? (struct physical *)(uintptr_t)e.link : NULL;
}

static void take_name(struct physical *p)
{
	struct table_entry e;
	if (p->named)
		table_take(TABLE_HANDLE, p->handle, &e);
	p->named = 0;
}

/* Puts memory that nothing keeps onto a list to be credited (needs the mutex). */
static void drop_if_unused(struct physical *p, struct physical **gone)
{
	if (p->references > 0 || p->uses > 0)
		return;
	take_name(p);
	struct physical **list = p->waits && handles.retaining ? &handles.waiting : gone;
	p->next = *list;
	*list = p;
}

/* Gives memory its handle (needs the mutex). What had it before has no references any more. */
static void give_name(struct physical *p, struct physical **gone)
{
	struct physical *old = find_physical(p->handle);
	struct table_entry e = {.kind = TABLE_HANDLE, .key = p->handle, .link = (uintptr_t)p};
	if (old) {
		take_name(old);
		old->references = 0;
		drop_if_unused(old, gone);
	}
	p->named = table_add(&e) == 0; /* without memory for it, charged until the process ends */
}

/* Without the mutex: the region's lock may have to be waited for. */
static void credit_all(struct physical *gone)
{
	for (struct physical *next; gone; gone = next) {
		next = gone->next;
		if (gone->size)
			region_release(gone->device, gone->size);
		free(gone);
	}
}

static void add_physical(struct physical made)
{
	struct physical *gone = NULL, *p = malloc(sizeof *p);
	if (!p)
		return; /* charged until the process ends */
	*p = made;
	pthread_mutex_lock(&handles.mutex);
	give_name(p, &gone);
	pthread_mutex_unlock(&handles.mutex);
	credit_all(gone);
}

CUresult handle_create_end(struct charge *c, CUresult result, uint64_t handle)
{
	if (c->device < 0)
		return result;
	if (result == CUDA_SUCCESS)
		add_physical((struct physical){.handle = handle,
					       .device = c->device,
					       .size = c->reserved,
					       .references = 1});
	else
		region_release(c->device, c->reserved);
	region_add_in_flight(c->device, -1);
	return result;
}

struct physical *handle_hold(uint64_t handle)
{
	pthread_mutex_lock(&handles.mutex);
	struct physical *p = find_physical(handle);
	if (p)
		p->uses++;
	pthread_mutex_unlock(&handles.mutex);
	return p;
}

/* Whether a call is looking for the memory at an address in a range (needs the mutex). */
static int is_looked_for(uint64_t at, uint64_t bytes)
{
	const struct handle_retain *c = handles.retaining;
	while (c && c->address - at >= bytes)
		c = c->next;
	return c != NULL;
}

/* One use less, of a mapping if that is given, and perhaps a reference. */
static void let_go(struct physical *p, int references, const struct mapping *of)
{
	struct physical *gone = NULL;
	pthread_mutex_lock(&handles.mutex);
	p->waits |= of && is_looked_for(of->at, of->bytes);
	p->references -= p->references < references ? p->references : references;
	p->uses--;
	drop_if_unused(p, &gone);
	pthread_mutex_unlock(&handles.mutex);
	credit_all(gone);
}

void handle_let_go(struct physical *p)
{
	let_go(p, 0, NULL);
}

struct physical *handle_release_begin(uint64_t handle)
{
	struct physical *p = handle_hold(handle);
	if (p)
		region_add_in_flight(p->device, 1);
	return p;
}

CUresult handle_release_end(struct physical *p, CUresult result)
{
	if (!p)
		return result;
	int device = p->device;
	let_go(p, result == CUDA_SUCCESS, NULL);
	region_add_in_flight(device, -1);
	return result;
}

/* Memory whose handle the driver has given out once more; NULL: not known (needs the mutex). */
static struct physical *find_retained(uint64_t handle)
{
	struct physical *p = find_physical(handle), *gone = NULL;
	struct physical **at = &handles.waiting;
	while (!p && *at && (*at)->handle != handle)
		at = &(*at)->next;
	if (p || !*at)
		return p;
	p = *at;
	*at = p->next;
	give_name(p, &gone);
	return p;
}

void handle_retain_begin(struct handle_retain *c, uint64_t address)
{
	pthread_mutex_lock(&handles.mutex);
	*c = (struct handle_retain){.address = address, .next = handles.retaining};
	handles.retaining = c;
	pthread_mutex_unlock(&handles.mutex);
}

/* Forgets a call (needs the mutex). The last one has what waited for it credited. */
static void end_retain(const struct handle_retain *c, struct physical **gone)
{
	struct handle_retain **at = &handles.retaining;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	while (!handles.retaining && handles.waiting) {
		struct physical *p = handles.waiting;
		handles.waiting = p->next;
		p->next = *gone;
		*gone = p;
	}
}

CUresult handle_retain_end(struct handle_retain *c, CUresult result,
			   const CUmemGenericAllocationHandle *handle)
{
	struct physical *gone = NULL;
	pthread_mutex_lock(&handles.mutex);
	struct physical *p = result == CUDA_SUCCESS ? find_retained(*handle) : NULL;
	if (p)
		p->references++;
	end_retain(c, &gone);
	pthread_mutex_unlock(&handles.mutex);
	credit_all(gone);
	return result;
}

/* One reference more of memory that is known; 0 when it is not. */
static int add_reference(uint64_t handle)
{
	pthread_mutex_lock(&handles.mutex);
	struct physical *p = find_physical(handle);
	if (p)
		p->references++;
	pthread_mutex_unlock(&handles.mutex);
	return p != NULL;
}

/* The driver does not tell the size of an imported handle: it is told by its mappings. */
void handle_imported(uint64_t handle)
{
	CUmemAllocationProp prop = {.location = {.type = 0}};
	fn_cuMemGetAllocationPropertiesFromHandle ask =
		ORIGINAL(cuMemGetAllocationPropertiesFromHandle);
	if (add_reference(handle))
		return; /* one of our own has one reference more */
	CUdevice ordinal;
	if (!ask || ask(&prop, handle) != CUDA_SUCCESS ||
	    location_kind_of(prop.location, &ordinal) != LOCATION_DEVICE)
		return;
	int device = settings_device(ordinal);
	if (device >= 0)
		add_physical((struct physical){
			.handle = handle, .device = device, .imported = 1, .references = 1});
}

static void drop_mapping(struct mapping *m)
{
	struct table_entry import;
	if (table_take(TABLE_IMPORT, m->at, &import))
		account_remove_uncounted(&import);
	let_go(m->of, 0, m);
	free(m);
}

CUresult handle_map_end(struct physical *p, CUresult result, uint64_t address, uint64_t bytes)
{
	struct mapping *m = p && result == CUDA_SUCCESS ? malloc(sizeof *m) : NULL, *old;
	if (p && result != CUDA_SUCCESS)
		handle_let_go(p);
	if (!m)
		return result; /* without memory the use stays: charged until the process ends */
	*m = (struct mapping){.at = address, .bytes = bytes, .of = p};
	int device = p->imported ? p->device : -1; /* `p` may be gone at once */
	pthread_mutex_lock(&handles.mutex);
	old = mapping_take_at(&handles.mapped, address); /* the driver has given its place away */
	mapping_put(&handles.mapped, m);
	pthread_mutex_unlock(&handles.mutex);
	if (old)
		drop_mapping(old);
	if (device >= 0)
		account_add_uncounted(TABLE_IMPORT, device, address, bytes, NULL);
	return result;
}

/* Whether the driver has an address mapped to this memory. */
static int is_mapped_at(const struct physical *p, uint64_t address)
{
	CUmemGenericAllocationHandle handle;
	fn_cuMemRetainAllocationHandle retain = ORIGINAL(cuMemRetainAllocationHandle);
	fn_cuMemRelease release = ORIGINAL(cuMemRelease);
	if (!retain || !release)
		return 1;
	if (retain(&handle, (void *)(uintptr_t)address) != CUDA_SUCCESS)
		return 0;
	release(handle);
	return handle == p->handle;
}

/*
 * Whether a mapping is still there after a call that touched it. What a driver does with a range
 * that cuts one, or when it refuses a range, differs: it is asked. The memory stays while any of
 * the mapping does.
 */
static int is_still_mapped(const struct unmapping *u, const struct mapping *m, CUresult result)
{
	int whole = m->at >= u->from && m->at + m->bytes <= u->to;
	if (result == CUDA_SUCCESS && whole)
		return 0;
	return is_mapped_at(m->of, m->at) || is_mapped_at(m->of, m->at + m->bytes - 1);
}

void handles_unmap_begin(struct unmapping *u, uint64_t address, uint64_t bytes)
{
	u->from = address;
	u->to = bytes < UINT64_MAX - address ? address + bytes : UINT64_MAX;
	pthread_mutex_lock(&handles.mutex);
	u->touched = mapping_take_range(&handles.mapped, u->from, u->to);
	pthread_mutex_unlock(&handles.mutex);
}

CUresult handles_unmap_end(struct unmapping *u, CUresult result)
{
	for (struct mapping *m; (m = mapping_take_root(&u->touched));) {
		int stays = is_still_mapped(u, m, result);
		pthread_mutex_lock(&handles.mutex);
		/* another thread may have mapped something in its place */
		stays = stays && !mapping_is_at(handles.mapped, m->at);
		if (stays)
			mapping_put(&handles.mapped, m);
		pthread_mutex_unlock(&handles.mutex);
		if (!stays)
			drop_mapping(m);
	}
	return result;
}

void handles_after_fork(void)
{
	pthread_mutex_init(&handles.mutex, NULL); /* a thread of the parent may have held it */
	handles.mapped = NULL;
	handles.waiting = NULL;
	handles.retaining = NULL;
}
