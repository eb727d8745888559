/* SPDX-License-Identifier: Apache-2.0 */
/* probe_truth_other.c: a worker opens memory of others, trims, asks and forks. */
#define _GNU_SOURCE
#include "probe_truth.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Descriptors that a worker offers. They stay open: nobody finds another file by their number. */
#define EXPORTS 32

/*
 * Offers a block or a handle to the other workers, or opens what one of them offers. What is opened
 * takes nothing.
 */
static void exchange_ipc(struct thread *t, int device)
{
	struct truth_offer *o = &board->offer[self],
			   *other = &board->offer[truth_below(&t->random, TRUTH_WORKERS)];
	struct piece p;
	CUipcMemHandle handle;
	CUdeviceptr at;
	if (other != o && __atomic_load_n(&other->ready, __ATOMIC_ACQUIRE) == 1 &&
	    other->device == device) {
		memcpy(&handle, other->handle, sizeof handle);
		if (via.cuIpcOpenMemHandle_v2(&at, handle, 1) == CUDA_SUCCESS &&
		    via.cuIpcCloseMemHandle(at))
			fail("what was opened cannot be closed");
		return;
	}
	draw(t, &p, KIND_PLAIN, device);
	if (p.bytes > 64 * MIB || attempt(t, &p))
		return;
	if (via.cuIpcGetMemHandle(&handle, p.at) == CUDA_SUCCESS) {
		memcpy(o->handle, &handle, sizeof handle);
		o->device = device;
		__atomic_store_n(&o->ready, 1, __ATOMIC_RELEASE);
	}
	if (!keep(&p))
		dispose(t, &p);
}

static void import_offer(const struct truth_offer *o)
{
	char path[64], target[128] = "";
	CUmemGenericAllocationHandle h;
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)o->pid, o->fd);
	/* Only this: a descriptor of the driver's state, once closed, would take our locks along.
	 */
	if (readlink(path, target, sizeof target - 1) < 0 || !strstr(target, "fakegpu-memory"))
		return;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 &&
	    via.cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd,
					       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ==
		    CUDA_SUCCESS &&
	    via.cuMemRelease(h))
		fail("what was imported cannot be released");
	if (fd >= 0)
		close(fd);
}

static void exchange_handle(struct thread *t, int device)
{
	static int exports;
	struct truth_offer *o = &board->offer[self],
			   *other = &board->offer[truth_below(&t->random, TRUTH_WORKERS)];
	struct piece p;
	if (__atomic_load_n(&other->ready, __ATOMIC_ACQUIRE) == 2 && truth_below(&t->random, 2)) {
		import_offer(other);
		return;
	}
	draw(t, &p, KIND_HANDLE, device);
	if (p.bytes > 64 * MIB || attempt(t, &p))
		return;
	if (__atomic_add_fetch(&exports, 1, __ATOMIC_RELAXED) < EXPORTS &&
	    via.cuMemExportToShareableHandle(&o->fd, p.handle[0],
					     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					     0) == CUDA_SUCCESS) {
		o->pid = getpid();
		__atomic_store_n(&o->ready, 2, __ATOMIC_RELEASE);
	}
	if (!keep(&p))
		dispose(t, &p);
}

/*
 * A child that no fork handler sees begin keeps what its parent has open, for a while after the
 * parent has died, too.
 */
static void fork_bare_child(void)
{
	pid_t pid = (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
	if (pid == 0) {
		usleep(30000);
		_exit(0);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

/* A child of a process that uses CUDA gets nothing, and costs the parent nothing. */
static void fork_child(struct thread *t)
{
	CUdeviceptr at;
	int status = 0;
	if (truth_below(&t->random, 3) == 0) {
		fork_bare_child();
		return;
	}
	pid_t pid = fork();
	if (pid == 0)
		_exit(via.cuMemAlloc_v2(&at, MIB) == CUDA_SUCCESS);
	if (pid > 0 && waitpid(pid, &status, 0) == pid && status)
		fail("a forked child ended with %d", status);
}

/* Pools are trimmed, replaced, and told to keep more or less. */
static void tend_pools(struct thread *t, int device)
{
	uint64_t threshold = (uint64_t[]){0, TRUTH_GRANULE, UINT64_MAX}[truth_below(&t->random, 3)];
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
	CUmemoryPool pool;
	switch (truth_below(&t->random, 6)) {
	case 0: via.cuStreamSynchronize(t->stream[device]); break;
	case 1: via.cuCtxSynchronize(); break;
	case 2: via.cuMemPoolTrimTo(t->pool[device], threshold); break;
	case 3: via.cuDeviceGraphMemTrim(device); break;
	case 4:
		via.cuMemPoolSetAttribute(t->pool[device], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
					  &threshold);
		break;
	default:
		if (via.cuMemPoolCreate(&pool, &props) || via.cuMemPoolDestroy(t->pool[device]))
			fail("a pool cannot be replaced");
		t->pool[device] = pool;
	}
}

static void ask(int device)
{
	size_t left = 0, all = 0;
	uint64_t limit = truth_most(&board->program, device), used = fakegpu_used(device);
	if (via.cuMemGetInfo_v2(&left, &all) || all != limit || left > limit)
		fail("device %d: told %llu of %llu bytes", device, (unsigned long long)left,
		     (unsigned long long)all);
	if (board->program.processes == 1 && board->program.threads == 1 &&
	    left != (used < limit ? limit - used : 0))
		fail("device %d: told %llu free bytes when %llu of %llu are used", device,
		     (unsigned long long)left, (unsigned long long)used, (unsigned long long)limit);
}

void do_other(struct thread *t, enum truth_kind kind)
{
	int device = (int)truth_below(&t->random, TRUTH_DEVICES);
	struct piece p = {.kind = kind, .device = device};
	use_device(t, device);
	note_call(t, "do", &p, CUDA_SUCCESS);
	if (kind == KIND_IPC)
		exchange_ipc(t, device);
	else if (kind == KIND_SHARE)
		exchange_handle(t, device);
	else if (kind == KIND_FORK)
		fork_child(t);
	else if (kind == KIND_ASK)
		ask(device);
	else if (kind == KIND_PARTIAL)
		do_partly(t, device);
	else if (kind == KIND_MEET)
		meet(t, device);
	if (kind != KIND_POOLS)
		return;
	flight_without_ask();
	tend_pools(t, device);
	flight_over();
}
