/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostile_test.c: somebody writes into the region while innocent processes of the container take
 * and give memory. None may crash, hang, or get more than its limit. `make hostile` writes 11,000
 * times and waits in full, `make test` does a part of it with a shorter patience.
 */
#include "attacked.h"

static uint64_t any(void)
{
	return (uint64_t)rand() << 42 ^ (uint64_t)rand() << 21 ^ (uint64_t)rand();
}

#define PART(member) offsetof(struct vgpu_region, member)
#define SOME 16 /* slots that are in use, and some more */

/* A place in the region for so many bytes, or for all of its part. */
static unsigned char *somewhere(size_t *length)
{
	static const struct {
		size_t at, size;
	} parts[] = {
		{0, 64}, /* magic to device_num */
		{64, PART(hami.procs) - 64},
		{PART(hami.procs), SOME * sizeof(struct hami_process)},
		{PART(hami.procs), HAMI_PROCESSES * sizeof(struct hami_process)},
		{PART(hami.proc_num), sizeof(struct hami_region) - PART(hami.proc_num)},
		{sizeof(struct hami_region), PART(ext) - sizeof(struct hami_region)},
		{PART(ext), 24}, /* magic to changed */
		{PART(ext.lock), 4},
		{PART(ext.reserved), 128},
		{PART(ext.slot), SOME * sizeof(struct vgpu_slot)},
		{PART(ext.slot), HAMI_PROCESSES * sizeof(struct vgpu_slot)},
		{PART(ext.pace), HAMI_DEVICES * sizeof(struct vgpu_pace)},
		{PART(ext.context), sizeof(struct vgpu_region) - PART(ext.context)},
		{0, sizeof(struct vgpu_region)},
	};
	size_t part = any() % (sizeof parts / sizeof *parts), size = parts[part].size;
	*length = *length < size ? *length : size;
	size_t from = any() % (size - *length + 1);
	if (from % 8 && *length % 8 == 0)
		from -= from % 8; /* a whole number more often than not */
	return (unsigned char *)region + parts[part].at + from;
}

/* Noise, zeros, ones, a bit, or what stands elsewhere. */
static void write_noise(void)
{
	static const size_t lengths[] = {1, 2, 4, 8, 8, 16, 64, 512, 4096, SIZE_MAX};
	size_t length = lengths[any() % (sizeof lengths / sizeof *lengths)], other;
	unsigned char *at = somewhere(&length);
	switch (any() % 5) {
	case 0: memset(at, 0, length); break;
	case 1: memset(at, 0xff, length); break;
	case 2: *at ^= (unsigned char)(1 << any() % 8); break;
	case 3:
		other = any() % (sizeof *region - length + 1);
		memmove(at, (unsigned char *)region + other, length);
		break;
	default:
		for (size_t i = 0; i < length; i++)
			at[i] = (unsigned char)any();
	}
}

/* What a file goes through and keeps its mapped pages. */
static void change_file(unsigned kind)
{
	char old[300];
	int fd = open(region_path, O_RDWR);
	if (fd < 0)
		return;
	snprintf(old, sizeof old, "%s.old", region_path);
	switch (kind) {
	case 0: /* within its last page */
		CHECK(!ftruncate(fd, (off_t)(sizeof *region / 4096 * 4096 + 1)));
		break;
	case 1: CHECK(!ftruncate(fd, 2 * sizeof *region)); break;
	case 2: CHECK(!ftruncate(fd, sizeof *region)); break;
	case 3:
		CHECK(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				 (off_t)(any() % 500 * 4096), 8 * 4096));
		break;
	case 4: CHECK(!rename(region_path, old)); break;
	default: CHECK(!unlink(region_path)); break;
	}
	close(fd);
}

/* Values that mean something, in the places where they do. */
static void write_lies(unsigned kind)
{
	static const uint64_t amounts[] = {
		0, 1, LIMIT, LIMIT + 1, 1ULL << 48, 1ULL << 63, UINT64_MAX};
	struct vgpu_extension *x = &region->ext;
	uint32_t slot = (uint32_t)any() % 16, device = (uint32_t)any() % 2;
	uint64_t amount = amounts[any() % 7];
	switch (kind % 20) {
	case 0: x->lock = slot; break;
	case 1: x->lock = VGPU_AWAITED | slot; break;
	case 2: x->lock = VGPU_NEWCOMER + slot % 3 - 1; break;
	case 3: region->hami.magic = region->hami.major = 0; break;
	case 4: x->magic = 0; break;
	case 5: x->version = 2; break;
	case 6: x->size = (uint32_t)amount; break;
	case 7: region->hami.proc_num = (int32_t)any(); break;
	case 8: region->hami.proc_num = 0; break;
	case 9: x->slot[slot].state = (uint32_t)any() % 3; break;
	case 10: x->slot[slot].pid = x->slot[any() % 16].pid; break;
	case 11: x->slot[slot].used[device] = amount; break;
	case 12: x->reserved[device] = amount; break;
	case 13: x->slot[slot].flight[device] = (int32_t)amount; break;
	case 14: memcpy(&x->slot[slot], &x->slot[any() % 16], sizeof *x->slot); break;
	case 15:
		x->pace[device] = (struct vgpu_pace){(int64_t)(any() << 1), any(), any(), any()};
		break;
	case 16: x->context[device] = amount; break;
	case 17: memset(region, (int)amount, VGPU_EXTENSION_OFFSET + 272); break;
	case 18: memset(x->slot, (int)amount, sizeof x->slot); break;
	default: change_file((unsigned)any() % 6); break;
	}
}

/* Deaths, stops and newcomers. */
static void disturb(void)
{
	int place = (int)(any() % HOSTILE_WORKERS);
	switch (any() % 3) {
	case 0:
		kill_worker(place);
		start_worker(place);
		break;
	case 1:
		kill(worker[place], SIGSTOP);
		usleep((useconds_t)(any() % 20000));
		kill(worker[place], SIGCONT);
		seen.stopped++;
		break;
	default:
		watch(2);
	}
}

/* The file that newcomers find, which may be another by now. */
static void follow(void)
{
	struct vgpu_region *fresh = map_at(region_path, sizeof *region, 0);
	if (!fresh)
		return;
	munmap(region, sizeof *region);
	region = fresh;
}

TEST("whatever is written into the region, nobody crashes, hangs or gets more than its limit, "
     "and afterwards all is well")
{
	unsigned rounds = is_long() ? 11000 : 660;
	srand(is_long() ? (unsigned)time(NULL) : 1);
	shorten_patience();
	begin(HOSTILE_WORKERS);
	for (unsigned i = 0; i < rounds && test_failed_checks < 5; i++) {
		if (i % 11 == 10)
			write_lies(i / 11);
		else
			write_noise();
		seen.corruptions++;
		watch(any() % 4);
		if (i % 16 == 0)
			disturb(), follow();
		if (is_long() && i % 1000 == 0)
			printf("    %u of %u, %llu calls\n", i, rounds,
			       (unsigned long long)operations());
	}
	uint64_t longest = end();
	CHECK(in_time(longest));
	memset(board, 0, sizeof *board);
	board->limit = LIMIT;
	memset(&seen, 0, sizeof seen);
	for (int i = 0; i < HOSTILE_WORKERS; i++)
		start_worker(i);
	watch(1000);
	CHECK(seen.sum <= LIMIT);
	end();
	CHECK_EQ(client(NULL, "alloc 64 expect ok alloc 1 expect oom"), 0);
	done();
}

/* The number under which a process holds the lock. */
static uint32_t number_of(pid_t pid)
{
	for (uint32_t i = 0; i < HAMI_PROCESSES; i++)
		if (region->ext.slot[i].state == SLOT_LIVE && region->ext.slot[i].pid == pid)
			return i + 1;
	CHECK(!"the process has a slot");
	return 0;
}

static uint32_t holder(void)
{
	return __atomic_load_n(&region->ext.lock, __ATOMIC_SEQ_CST) & ~VGPU_AWAITED;
}

/* All but the first make calls. */
static void expect_progress(void)
{
	uint64_t before[HOSTILE_WORKERS];
	for (int i = 1; i < 4; i++)
		before[i] = board->worker[i].operations;
	watch(500);
	for (int i = 1; i < 4; i++)
		CHECK(board->worker[i].operations > before[i] + 10);
}

/*
 * Stops the first where it has no lock of the fake card's: that would stop the others, too. On a
 * busy machine a process stops late, and may take that lock until then.
 */
static void stop_first(void)
{
	for (int i = 0; i < 100; i++) {
		int status;
		kill(worker[0], SIGSTOP);
		CHECK(waitpid(worker[0], &status, WUNTRACED) == worker[0] && WIFSTOPPED(status));
		uint64_t before = board->worker[1].operations;
		usleep(50000);
		if (board->worker[1].operations > before + 10)
			break;
		kill(worker[0], SIGCONT);
		usleep(10000);
	}
	board->worker[0].since_ns = 0; /* it is no hang of its own */
}

TEST("a holder of the lock who is stopped delays the others by 10 s in all, however often they "
     "meet it")
{
	shorten_patience();
	begin(4);
	stop_first();
	uint32_t number = number_of(worker[0]);
	uint64_t held = now();
	for (int i = 0; i < 5; i++) {
		__atomic_store_n(&region->ext.lock, number, __ATOMIC_SEQ_CST);
		while (holder() == number && !test_failed_checks)
			watch(5);
	}
	held = (now() - held) / 1000000;
	printf("    the lock was held for %llu ms in all\n", (unsigned long long)held);
	CHECK(held > patience_ms / 2 && in_time(held));
	expect_progress();
	kill(worker[0], SIGCONT);
	watch(200);
	board->worker[0].longest_ns = 0;
	CHECK(in_time(end()));
	done();
}

TEST("a holder of the lock who is killed delays nobody")
{
	begin(4);
	for (int i = 0; i < 10; i++) {
		uint32_t number = number_of(worker[0]);
		kill(worker[0], SIGSTOP);
		__atomic_store_n(&region->ext.lock, number, __ATOMIC_SEQ_CST);
		kill_worker(0);
		expect_progress();
		start_worker(0);
		await(0, board->worker[0].operations + 10);
		if (!is_long() && i == 1)
			break;
	}
	CHECK(end() < 3000); /* far from what patience there is */
	done();
}

TEST("who holds the format lock for ever delays each newcomer by its patience, and nobody else")
{
	struct flock l = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = VGPU_FORMAT_LOCK, .l_len = 1};
	shorten_patience();
	begin(4);
	int fd = open(region_path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0 && !fcntl(fd, F_OFD_SETLKW, &l));
	start_worker(4);
	watch(patience_ms + 1000);
	CHECK(board->worker[4].operations > 100);
	CHECK(in_time(board->worker[4].longest_ns / 1000000));
	for (int i = 0; i < 4; i++)
		CHECK(!is_long() || board->worker[i].longest_ns / 1000000 < 3000);
	CHECK(seen.sum <= LIMIT);
	end();
	close(fd);
	done();
}

TEST("newcomers who find the header spoilt do no harm to those who live")
{
	begin(4);
	void *words[] = {&region->hami.magic, &region->hami.major, &region->ext.magic,
			 &region->ext.version, &region->ext.size};
	for (int i = 0; i < (is_long() ? 100 : 20); i++) {
		*(uint32_t *)words[i % 5] = (uint32_t)any() & 0xffff;
		uint64_t before = board->worker[4].operations;
		start_worker(4);
		seen.corruptions++;
		await(4, before + 10);
		watch(1);
		kill_worker(4);
	}
	CHECK(seen.sum <= LIMIT);
	CHECK(end() < 3000); /* far from what patience there is */
	done();
}

TEST_MAIN
