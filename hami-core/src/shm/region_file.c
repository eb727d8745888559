/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/region_file.h"

#include <errno.h>

#include "platform/log.h"
#include "platform/prim.h"
#include "shm/lock.h"
#include "shm/word.h"

#define POLL_MS 2
#define VERSIONS 100 /* another number in the place of the version is none */

/* Writes a word that is not as it should be. */
static void repair_word(void *word, uint32_t right)
{
	if (word_get32(word) != right)
		word_set32(word, right);
}

void region_file_repair_header(struct vgpu_region *m)
{
	repair_word(&m->hami.magic, HAMI_MAGIC);
	repair_word(&m->hami.major, 1);
	repair_word(&m->hami.minor, 2);
	repair_word(&m->ext.version, VGPU_EXTENSION_VERSION);
	repair_word(&m->ext.size, sizeof m->ext);
	if (word_get(&m->ext.magic) != VGPU_EXTENSION_MAGIC)
		word_set(&m->ext.magic, VGPU_EXTENSION_MAGIC); /* last: absent means unfinished */
}

/* An all-zero region becomes one that is in order. */
static void fill_region(struct vgpu_region *m)
{
	m->hami.semaphore[0] = 1; /* free, should an old reader ever wait for it */
	m->hami.utilization_switch = 1;
	region_file_repair_header(m);
}

static int is_in_order(const struct vgpu_region *m)
{
	return m->ext.magic == VGPU_EXTENSION_MAGIC && m->ext.version == VGPU_EXTENSION_VERSION &&
	       m->ext.size == sizeof m->ext && m->hami.magic == HAMI_MAGIC && m->hami.major == 1;
}

/* Both numbers say so: one alone is spoilt. */
static int is_other_version(const struct vgpu_region *m)
{
	uint32_t version = word_get32(&m->ext.version);
	return m->ext.magic == VGPU_EXTENSION_MAGIC && m->ext.size != sizeof m->ext &&
	       version != VGPU_EXTENSION_VERSION && version && version < VERSIONS;
}

/* Puts a mapped file in order. 0, or -1 with errno. */
static int prepare_region(struct vgpu_region *m, int fd, int complete)
{
	if (complete && is_in_order(m))
		return 0;
	if (prim_is_locked(fd, VGPU_SLOT_LOCK, HAMI_PROCESSES) == 0) {
		if (prim_zero(fd, sizeof *m))
			return -1;
		fill_region(m);
		return 0;
	}
	if (is_other_version(m))
		return errno = EPROTONOSUPPORT, -1;
	log_line(LOG_WARN, "the region's header is spoilt while processes use it: "
		 "it is written again");
	region_file_repair_header(m);
	word_set32(&m->ext.changed, 1);
	return 0;
}

static struct vgpu_region *map_file(int fd)
{
	int complete = prim_size(fd) >= (long long)sizeof(struct vgpu_region);
	struct vgpu_region *m = prim_grow(fd, sizeof *m) ? NULL : prim_map(fd, sizeof *m);
	if (!m || prepare_region(m, fd, complete) == 0)
		return m;
	int saved = errno;
	prim_unmap(m, sizeof *m);
	errno = saved;
	return NULL;
}

/* Takes the format lock. 0 also when patience ends: we go on without. -1: no such locks here. */
static int lock_format(int fd)
{
	static int told; /* a process may have to try often */
	uint32_t still = 0;
	long long before = prim_coarse_ms();
	while (prim_lock_try(fd, VGPU_FORMAT_LOCK)) {
		if (errno != EAGAIN && errno != EACCES)
			return -1;
		prim_wait(&still, 0, POLL_MS);
		long long now = prim_coarse_ms();
		if (!lock_spend_patience(now - before)) {
			log_line(told ? LOG_INFO : LOG_WARN,
				 "somebody has held the region's format lock for 10 s: "
				 "this process joins without it");
			told = 1;
			return 0;
		}
		before = now;
	}
	return 0;
}

struct vgpu_region *region_file_open(const char *path, int *fd)
{
	struct vgpu_region *m = NULL;
	*fd = prim_open_shared(path);
	if (*fd < 0)
		return NULL;
	if (lock_format(*fd) == 0)
		m = map_file(*fd);
	if (!m) {
		prim_close(*fd);
		*fd = -1;
	}
	return m;
}

void region_file_unlock_format(int fd)
{
	int saved = errno;
	prim_unlock(fd, VGPU_FORMAT_LOCK);
	errno = saved;
}

struct vgpu_region *region_file_open_private(void)
{
	struct vgpu_region *m = prim_map(-1, sizeof *m);
	if (m)
		fill_region(m);
	return m;
}
