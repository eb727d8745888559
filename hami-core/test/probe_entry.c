/* SPDX-License-Identifier: Apache-2.0 */
/* probe_entry.c: programs for entry_test.c, by name. Each is held to 64 MiB on device 0. */
#define _GNU_SOURCE
#include "probe_entry.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

typedef CUresult (*f_init)(unsigned);
typedef CUresult (*f_retain)(CUcontext *, CUdevice);
typedef CUresult (*f_set)(CUcontext);
typedef CUresult (*f_alloc)(CUdeviceptr *, size_t);
typedef CUresult (*f_proc)(const char *, void **, int, uint64_t);
typedef nvmlReturn_t (*f_handle)(unsigned, nvmlDevice_t *);
typedef nvmlReturn_t (*f_memory)(nvmlDevice_t, nvmlMemory_t *);

static int errno_at_main;

/* Device 0 gives 64 MiB and not a page more. */
void is_limited(void)
{
	CUdeviceptr at;
	use_device(0);
	NEED(take(66 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemAlloc_v2(&at, 64 * MIB) == CUDA_SUCCESS);
	NEED(take(2 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemFree_v2(at) == CUDA_SUCCESS);
}

static void limited(void)
{
	is_limited();
}

void closed(void)
{
	use_device(0);
	NEED(take(1) == CUDA_ERROR_NOT_PERMITTED && take(64 * MIB) == CUDA_ERROR_NOT_PERMITTED);
}

/* The file goes before the first CUDA call. */
static void unlinked(void)
{
	NEED(!unlink(getenv("HAMICORE_TEST_LIMITS")));
	is_limited();
}

static void dangling(void)
{
	NEED(!unlink(getenv("HAMICORE_TEST_LIMITS")));
	NEED(!symlink("/nonexistent/limits", getenv("HAMICORE_TEST_LIMITS")));
	is_limited();
}

static void rewritten(void)
{
	FILE *f = fopen(getenv("HAMICORE_TEST_LIMITS"), "w");
	NEED(f && fputs("vgpu-limits 1\n", f) >= 0 && !fclose(f));
	is_limited();
}

/* Makes the machine's folder the root, where there is neither library nor limits. */
static void leave_root(void)
{
	NEED(!chroot(getenv("FAKEGPU_DIR")) && !chdir("/"));
	setenv("FAKEGPU_DIR", "/", 1);
	setenv("FAKEGPU_DEV", "/", 1);
	unlink("/limits");
	(void)mkdir("/dev", 0755); /* where the devices' names lead to */
	(void)mknod("/dev/null", S_IFCHR | 0666, makedev(1, 3));
}

/* Makes the folders on the way to the region in a new root. */
static void make_way(void)
{
	char path[256];
	snprintf(path, sizeof path, "%s", getenv("PROBE_REGION"));
	for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = 0;
		(void)mkdir(path, 0755);
		*p = '/';
	}
}

static void chrooted(void)
{
	leave_root();
	make_way();
	is_limited();
}

/* The sum of the container's processes cannot be held from there. */
static void chrooted_away(void)
{
	leave_root();
	closed();
}

static void covered(void)
{
	NEED(!mount("none", "/usr/local/vgpu", "tmpfs", 0, NULL));
	NEED(access("/usr/local/vgpu/limits", F_OK));
	is_limited();
}

/*
 * A namespace of the loader that the library cannot be loaded into any more, since its file is
 * covered.
 */
static void covered_namespace(void)
{
	CUdeviceptr at;
	use_device(0);
	NEED(!mount("none", "/usr/local/vgpu", "tmpfs", 0, NULL));
	void *driver = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
	NEED(driver);
	f_init init = (f_init)dlsym(driver, "cuInit");
	f_retain retain = (f_retain)dlsym(driver, "cuDevicePrimaryCtxRetain");
	f_set set = (f_set)dlsym(driver, "cuCtxSetCurrent");
	f_proc by_name = (f_proc)dlsym(driver, "cuGetProcAddress");
	f_alloc alloc = NULL;
	CUcontext context;
	NEED(by_name("cuMemAlloc", (void **)&alloc, 12000, 0) == CUDA_SUCCESS);
	NEED(init(0) == CUDA_SUCCESS && retain(&context, 0) == CUDA_SUCCESS);
	NEED(set(context) == CUDA_SUCCESS);
	NEED(alloc(&at, 66 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* The same by a library that is linked to the driver. */
static void covered_plugin(void)
{
	use_device(0);
	NEED(!mount("none", "/usr/local/vgpu", "tmpfs", 0, NULL));
	void *plugin = dlmopen(LM_ID_NEWLM, getenv("PROBE_PLUGIN"), RTLD_NOW);
	NEED(plugin && ((int (*)(void))dlsym(plugin, "plugin_start"))() == 0);
	CUresult (*alloc)(size_t, int) = (CUresult(*)(size_t, int))dlsym(plugin, "plugin_take");
	NEED(alloc(66 * MIB, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(alloc(66 * MIB, 1) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* The parent has asked NVML alone, so that CUDA works in the child. */
static void child_chrooted(void)
{
	nvmlDevice_t device;
	nvmlMemory_t memory;
	int status;
	void *h = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	NEED(h);
	NEED(((nvmlReturn_t(*)(void))dlsym(h, "nvmlInit_v2"))() == NVML_SUCCESS);
	f_handle handle = (f_handle)dlsym(h, "nvmlDeviceGetHandleByIndex_v2");
	f_memory info = (f_memory)dlsym(h, "nvmlDeviceGetMemoryInfo");
	NEED(handle(1, &device) == NVML_SUCCESS && info(device, &memory) == NVML_SUCCESS);
	NEED(memory.total == 64 * MIB);
	pid_t pid = fork();
	if (pid == 0) {
		leave_root();
		make_way();
		is_limited();
		exit(0);
	}
	NEED(waitpid(pid, &status, 0) == pid && status == 0);
}

/* Variables go, or say something else, before the first CUDA call. */
static void unset(void)
{
	setenv("CUDA_DEVICE_MEMORY_LIMIT_0", "900m", 1);
	is_limited();
}

/* How a program begins: errno, which is 0 by the C standard, and the descriptors that are open. */
static void begins(void)
{
	printf("errno %d\n", errno_at_main);
	for (int fd = 0; fd < 256; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			printf("open: %d\n", fd);
}

void take_40(void)
{
	NEED(take(40 * MIB) == CUDA_SUCCESS);
	pid_t pid = fork();
	if (pid == 0) /* another process of the container sees it */
		execl("/proc/self/exe", "probe_entry", "has-24", (char *)NULL);
	int status;
	NEED(waitpid(pid, &status, 0) == pid && status == 0);
}

/* No descriptor is free at the first call; later there are some. */
static void descriptors(void)
{
	struct rlimit all, none;
	NEED(!getrlimit(RLIMIT_NOFILE, &all));
	none = all;
	none.rlim_cur = 3;
	NEED(!setrlimit(RLIMIT_NOFILE, &none));
	for (int i = 0; i < 3; i++) {
		(void)cuInit(0);
		CUdeviceptr at;
		NEED(cuMemAlloc_v2(&at, MIB) != CUDA_SUCCESS);
	}
	NEED(!setrlimit(RLIMIT_NOFILE, &all));
	is_limited();
	take_40();
}

void has_24(void)
{
	use_device(0);
	NEED(left() == 24 * MIB && take(26 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* Somebody has a lease on the limits file when the program starts, and gives it back. */
static void leased(void)
{
	signal(SIGIO, SIG_IGN);
	int fd = open(getenv("HAMICORE_TEST_LIMITS"), O_RDWR);
	NEED(fd >= 0 && !fcntl(fd, F_SETLEASE, F_WRLCK) && dup2(fd, 9) == 9 && !close(fd));
	execl("/proc/self/exe", "probe_entry", "lease-ends", (char *)NULL);
}

static void lease_ends(void)
{
	use_device(0);
	NEED(take(1) == CUDA_ERROR_NOT_PERMITTED && take(1) == CUDA_ERROR_NOT_PERMITTED);
	NEED(!fcntl(9, F_SETLEASE, F_UNLCK) && !close(9));
	is_limited();
}

/* A refusal, of which one line is written. */
static void refuse(void)
{
	use_device(0);
	NEED(take(100 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* The program's own file is opened as descriptor 2. */
static void own_file(void)
{
	close(2);
	NEED(open("data", O_RDWR | O_CREAT | O_TRUNC, 0666) == 2);
	refuse();
	struct stat st;
	NEED(!fstat(2, &st) && st.st_size == 0);
	pid_t pid = fork();
	if (pid == 0) {
		setenv("FAKEGPU_DIR", "/nonexistent", 1);
		(void)cuInit(0);
		exit(0);
	}
	waitpid(pid, NULL, 0);
	NEED(!fstat(2, &st) && st.st_size == 0);
}

/*
 * The same, with the number that the file of standard error had, as file systems give it out
 * again.
 */
static void own_number(void)
{
	struct stat before, st;
	NEED(!fstat(2, &before) && !close(2) && !unlink("told"));
	NEED(open("later", O_RDWR | O_CREAT | O_TRUNC, 0666) == 2 && !fstat(2, &st));
	printf("%s\n", st.st_ino == before.st_ino ? "the same" : "another");
	refuse();
	NEED(!fstat(2, &st) && st.st_size == 0);
}

/* It was started without one, and opens a file that gets the number. */
static void late_file(void)
{
	NEED(fcntl(2, F_GETFD) < 0);
	NEED(open("data", O_RDWR | O_CREAT | O_TRUNC, 0666) == 2);
	refuse();
	struct stat st;
	NEED(!fstat(2, &st) && st.st_size == 0);
}

/* Files may not become longer than what standard error has already. */
static void longest_file(void)
{
	struct rlimit r = {1000, 1000};
	NEED(!setrlimit(RLIMIT_FSIZE, &r));
	refuse();
}

/* Nobody reads what the program writes on standard error, and it never writes there itself. */
static void broken_pipe(void)
{
	struct sigaction s;
	NEED(!sigaction(SIGPIPE, NULL, &s) && s.sa_handler == SIG_DFL);
	refuse();
}

static void full_pipe(void)
{
	char block[4096] = {0};
	NEED(!fcntl(2, F_SETFL, O_NONBLOCK));
	while (write(2, block, sizeof block) > 0)
		;
	NEED(!fcntl(2, F_SETFL, 0));
	alarm(5);
	refuse();
}

/* One of these ends is not read, or read by nobody. */
static void on_pipe(const char *name, int keep)
{
	int end[2];
	NEED(!pipe(end) && dup2(end[1], 2) == 2);
	close(end[1]);
	if (!keep)
		close(end[0]);
	execl("/proc/self/exe", "probe_entry", name, (char *)NULL);
}

static void unheard(void)
{
	on_pipe("broken-pipe", 0);
}

static void unread(void)
{
	on_pipe("full-pipe", 1);
}

static int in_constructor; /* the plugin has begun, and holds the loader's lock */

static void *first_call(void *unused)
{
	while (!__atomic_load_n(&in_constructor, __ATOMIC_ACQUIRE))
		sched_yield();
	is_limited();
	return unused;
}

void entry_plugin_begins(void);
void entry_plugin_begins(void)
{
	__atomic_store_n(&in_constructor, 1, __ATOMIC_RELEASE);
	usleep(2000); /* the other thread gets into its first call */
}

/* A library is loaded whose constructor uses CUDA, while another thread makes the first call. */
static void constructor(void)
{
	pthread_t other;
	alarm(10);
	NEED(!pthread_create(&other, NULL, first_call, NULL));
	void *plugin = dlopen(getenv("ENTRY_PLUGIN"), RTLD_NOW);
	NEED(plugin);
	NEED(!pthread_join(other, NULL));
	NEED(*(int *)dlsym(plugin, "entry_plugin_result") == CUDA_SUCCESS);
}

/*
 * A library has a function of its own by a driver's name; a driver's copy under any name stays
 * the driver.
 */
static void own_names(void)
{
	void *own = dlopen(getenv("ENTRY_OWN"), RTLD_NOW | RTLD_LOCAL);
	void *copy = dlopen(getenv("ENTRY_COPY"), RTLD_NOW | RTLD_LOCAL);
	NEED(own && copy);
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(own, "cuInit");
	NEED(init && init(0) == 4711);
	NEED((void *)init == dlsym(own, "own_cuInit"));
	void *(*versioned)(void *, const char *, const char *) = dlvsym;
	NEED(versioned(own, "cuInit", "ANY_1") == (void *)init); /* without versions it has any */
	f_alloc alloc = (f_alloc)dlsym(copy, "cuMemAlloc_v2");
	CUdeviceptr at;
	use_device(0);
	NEED(alloc && alloc(&at, 66 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* Somebody wraps dlsym and dlopen, in front of the library or behind it. */
static void wrapped(void)
{
	int *calls = (int *)dlsym(RTLD_DEFAULT, "entry_wrapper_calls"), before = *calls;
	void *(*real)(void *, const char *) =
		(void *(*)(void *, const char *))dlsym(RTLD_DEFAULT, "entry_wrapper_real");
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	f_alloc by_name = (f_alloc)dlsym(driver, "cuMemAlloc_v2");
	f_alloc by_wrapper = (f_alloc)real(driver, "cuMemAlloc_v2");
	CUdeviceptr at;
	use_device(0);
	NEED(by_name(&at, 66 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(by_wrapper(&at, 66 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	void *plugin = dlopen(getenv("PROBE_PLUGIN"), RTLD_NOW | RTLD_DEEPBIND);
	CUresult (*alloc)(size_t, int) = (CUresult(*)(size_t, int))dlsym(plugin, "plugin_take");
	NEED(alloc(66 * MIB, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(*calls > before || !strcmp(getenv("WRAPPER_PLACE"), "behind"));
}

static const struct {
	const char *name;
	void (*run)(void);
} probes[] = {
	{"limited", limited}, {"closed", closed}, {"unlinked", unlinked}, {"dangling", dangling},
	{"rewritten", rewritten}, {"chrooted", chrooted},
	{"chrooted-away", chrooted_away}, {"covered", covered}, {"region-later", region_later},
	{"context-later", context_later}, {"room-later", room_later}, {"room-child", room_child},
	{"another-version", another_version}, {"version-child", version_child},
	{"covered-namespace", covered_namespace}, {"covered-plugin", covered_plugin},
	{"child-chrooted", child_chrooted}, {"unset", unset}, {"begins", begins},
	{"descriptors", descriptors}, {"has-24", has_24}, {"leased", leased},
	{"lease-ends", lease_ends}, {"refuse", refuse}, {"own-file", own_file},
	{"own-number", own_number}, {"late-file", late_file}, {"longest-file", longest_file},
	{"broken-pipe", broken_pipe}, {"full-pipe", full_pipe}, {"unheard", unheard},
	{"unread", unread}, {"constructor", constructor}, {"own-names", own_names},
	{"wrapped", wrapped},
};

int main(int argc, char **argv)
{
	errno_at_main = errno;
	for (size_t i = 0; argc == 2 && i < sizeof probes / sizeof *probes; i++)
		if (!strcmp(argv[1], probes[i].name))
			return probes[i].run(), 0;
	return 2;
}
