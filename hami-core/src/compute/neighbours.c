/* SPDX-License-Identifier: Apache-2.0 */
#include "compute/neighbours.h"

#include <string.h>

#include "model/limits.h"
#include "compute/budget.h"
#include "platform/prim.h"
#include "settings/settings.h"

/* a second change may bear the same time as the first: look again */
#define SETTLE_NS 1000000000ULL

static struct {
	int busy;
	uint64_t changed, again_ns;
	int unreadable;
	int count;
	struct neighbour neighbour[NEIGHBOURS];
} self;

static int kept; /* our own file is open for writing; a child after fork keeps that, too */

int neighbours_try_lock(void)
{
	return !__atomic_exchange_n(&self.busy, 1, __ATOMIC_ACQUIRE);
}

void neighbours_unlock(void)
{
	__atomic_store_n(&self.busy, 0, __ATOMIC_RELEASE);
}

/* The path of a file in our directory; of our own with name NULL. NULL when it is too long. */
static const char *neighbour_path(const char *name, const char *ending, char *out, size_t room)
{
	const char *own = settings_borrow_path();
	size_t directory = name ? (size_t)(strrchr(own, '/') - own) + 1 : strlen(own),
	       n = name ? strlen(name) : 0;
	if (directory + n + strlen(ending) >= room)
		return NULL;
	memcpy(out, own, directory);
	memcpy(out + directory, name ? name : "", n);
	strcpy(out + directory + n, ending);
	return out;
}

static uint64_t hash_name(const char *name)
{
	uint64_t hash = 14695981039346656037ULL; /* FNV-1a */
	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 1099511628211ULL;
	return hash | 1;
}

/*
 * The container's patience with a neighbour, new if it has none yet; NULL when there is no room for
 * it.
 */
static struct vgpu_patience *find_patience(uint64_t who, int device)
{
	struct vgpu_patience *p = budget_common(device)->patience;
	for (int i = 0; i < NEIGHBOURS; i++) {
		uint64_t before = 0;
		if (__atomic_compare_exchange_n(&p[i].who, &before, who, 0, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED) ||
		    before == who)
			return &p[i];
	}
	return NULL;
}

/* What a neighbour is entitled to of our devices. -1 when its file is no such thing. */
static int read_share(struct neighbour *n)
{
	static char text[8192]; /* both are under `busy` */
	static struct limits theirs;
	char path[512], why[200];
	const char *file = neighbour_path(n->name, ".share", path, sizeof path);
	long length = file ? prim_read(file, text, sizeof text) : -1;
	if (length < 0 || limits_parse(text, (size_t)length, &theirs, why, sizeof why))
		return -1;
	for (int i = 0; i < HAMI_DEVICES; i++) {
		const char *uuid = settings_uuid(i);
		int number = *uuid ? limits_find(&theirs, uuid) : -1;
		unsigned cores = number < 0 ? 100 : theirs.device[number].cores;
		n->number[i] = number;
		n->claim[i] = (struct pace_claim){.percent = cores < 100 ? cores : 0,
						  .priority = theirs.priority};
		n->patience[i] = n->claim[i].percent ? find_patience(hash_name(n->name), i) : NULL;
	}
	return 0;
}

static void add_neighbour(const char *file, void *unused)
{
	(void)unused;
	const char *ending = strstr(file, ".share");
	const char *own = strrchr(settings_borrow_path(), '/') + 1;
	size_t length = ending ? (size_t)(ending - file) : 0;
	if (!ending || ending[6] || (strlen(own) == length && !memcmp(own, file, length)))
		return;
	struct neighbour *n = &self.neighbour[self.count];
	if (self.count == NEIGHBOURS || length >= sizeof n->name) {
		self.unreadable = 1;
		return;
	}
	memset(n, 0, sizeof *n);
	memcpy(n->name, file, length);
	if (read_share(n))
		self.unreadable = 1;
	else
		self.count++;
}

int neighbours_scan(uint64_t now)
{
	char path[512];
	const char *directory = neighbour_path("", "", path, sizeof path);
	uint64_t changed = directory ? prim_directory_changed_ns(directory) : 0;
	int new = !changed || changed != self.changed;
	if (new || (self.again_ns && now >= self.again_ns)) {
		self.changed = changed;
		self.count = 0;
		self.unreadable = 0;
		if (!directory || prim_list(directory, add_neighbour, NULL))
			self.unreadable = 1;
		self.again_ns = new || self.unreadable ? now + SETTLE_NS : 0;
	}
	return self.unreadable ? -1 : self.count;
}

struct neighbour *neighbours_at(int i)
{
	return &self.neighbour[i];
}

int neighbours_read_demand(const struct neighbour *n, int device, struct vgpu_demand *out)
{
	struct vgpu_demand all[HAMI_DEVICES + 1] = {{0}};
	char path[512];
	const char *file = neighbour_path(n->name, ".demand", path, sizeof path);
	if (!file || prim_read(file, (char *)all, sizeof all) < 0)
		return -1;
	*out = all[n->number[device]];
	return 0;
}

struct vgpu_demand *neighbours_own_demand(int device)
{
	return &budget_common(device)->demand;
}

void neighbours_publish_demand(int device)
{
	char path[512];
	const char *file = neighbour_path(NULL, ".demand", path, sizeof path);
	if (file && !kept)
		kept = !prim_keep_writable(file);
	if (file)
		prim_write_at(file, device * VGPU_DEMAND_BYTES, neighbours_own_demand(device),
			      VGPU_DEMAND_BYTES);
}

void neighbours_after_fork(void)
{
	memset(&self, 0, sizeof self);
}
