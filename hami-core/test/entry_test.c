/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry_test.c: what holds from the moment the library is loaded, and what it must leave alone
 * from then on.
 */
#include "machine.h"


static int sanitized(void)
{
	return strstr(getenv("VGPU_TEST_PRELOAD"), "san") != NULL;
}

/*
 * Runs a program of probe_entry.c in the machine's folder, with `redirections` of the shell; its
 * exit code.
 */
static int entry_in(const char *library, const char *name, const char *redirections,
		    const char *const *variables)
{
	char command[1024], path[256];
	snprintf(command, sizeof command, "cd %s && exec %s/test/test/probe_entry %s %s", dir,
		 getenv("VGPU_TEST_BUILD"), name, redirections);
	snprintf(path, sizeof path, "%s/test/test/entry_plugin.so", getenv("VGPU_TEST_BUILD"));
	setenv("ENTRY_PLUGIN", path, 1);
	return run_with(library, (char *const[]){"sh", "-c", command, NULL}, variables);
}

static int entry_code(const char *name, const char *redirections, const char *const *variables)
{
	return entry_in(getenv("VGPU_TEST_PRELOAD"), name, redirections, variables);
}

/* The same, and it must end well. */
static void entry(const char *name, const char *const *variables)
{
	int code = entry_code(name, "", variables);
	if (code)
		printf("    %s ended with %d:\n%s\n", name, code, output);
	CHECK_EQ(code, 0);
}

/* What a file of the machine holds. */
static const char *content(const char *name)
{
	static char text[8192];
	char path[256];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "r");
	size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
	if (f)
		fclose(f);
	text[n] = 0;
	return text;
}

static int times(const char *text, const char *part)
{
	int n = 0;
	for (; (text = strstr(text, part)) != NULL; text++)
		n++;
	return n;
}

/* Runs a program of ours where the product is installed, after a command that changes something. */
static void installed(const char *limits, const char *change, const char *program)
{
	char command[1024];
	snprintf(command, sizeof command,
		 "%s && export PATH=$PATH:%s/test/test LD_LIBRARY_PATH=$FAKE && %s", change,
		 getenv("VGPU_TEST_BUILD"), program);
	in_container(limits, command);
}

/* The libraries that stand in, and the fake driver behind them. */
static const char *standing_in(void)
{
	static char path[1024];
	snprintf(path, sizeof path, "%s/test/standin:%s", getenv("VGPU_TEST_BUILD"),
		 getenv("VGPU_TEST_FAKE"));
	return path;
}

TEST("limits stay as they were at load: file removed, replaced, rewritten, after chroot")
{
	static const char *const ways[] = {"unlinked", "dangling", "rewritten"};
	for (int i = 0; i < 3; i++) {
		machine(LIMITS);
		entry(ways[i], NULL);
		done();
	}
	machine(LIMITS);
	if (geteuid() == 0)
		entry("chrooted", NULL);
	done();
}

TEST("where chroot has left the region behind no memory is given out")
{
	machine(LIMITS);
	if (geteuid() == 0)
		entry("chrooted-away", NULL);
	CHECK(geteuid() || strstr(output, "vgpu.cache: No such file or directory; "));
	done();
}

TEST("a forked child keeps the limits of its parent, also after chroot")
{
	machine(LIMITS);
	if (geteuid() == 0)
		entry("child-chrooted", NULL);
	done();
}


TEST("a mount over the limits and chroot before the first call leave the product's limits")
{
	installed(LIMITS, "true", "probe_entry covered");
	installed(LIMITS, "true", "probe_entry chrooted");
	installed(LIMITS, "true", "probe_entry chrooted-away");
}

TEST("a library that the loader cannot load once more is not left behind by a namespace (dlmopen)")
{
	installed(LIMITS, "true", "probe_entry covered-namespace");
	installed(LIMITS, "true", "probe_entry covered-plugin");
}

TEST("a library that was installed and finds no limits refuses memory, variables or not")
{
	static const char *const missing[] = {
		"true",
		"ln -s /nonexistent /usr/local/vgpu/limits",
		"ln -s limits /usr/local/vgpu/limits",
		"mkdir /usr/local/vgpu/limits",
	};
	static const char *const programs[] = {
		"probe_entry closed",
		"CUDA_DEVICE_MEMORY_LIMIT=900m probe_entry closed",
	};
	for (int i = 0; i < 4; i++)
		for (int variables = 0; variables < 2; variables++) {
			const char *line = "libvgpu: error: /usr/local/vgpu/limits: ";
			installed(NULL, missing[i], programs[variables]);
			CHECK(geteuid() || strstr(output, "unshare:") || times(output, line) == 1);
		}
}

TEST("a program without CUDA is silent where limits are missing")
{
	in_container(NULL, "out=$(sh -c 'echo word; ls / >/dev/null' 2>&1) && [ \"$out\" = word ]");
}

TEST("what stands in for the driver and finds no limits refuses memory")
{
	const char *const alone[] = {"LD_LIBRARY_PATH", standing_in(), NULL};
	const char *const told[] = {"LD_LIBRARY_PATH", standing_in(), "CUDA_DEVICE_MEMORY_LIMIT",
				    "900m", NULL};
	machine(NULL);
	CHECK_EQ(entry_in("", "closed", "", alone), 0);
	CHECK_EQ(times(output, "libvgpu: error"), 1);
	CHECK_EQ(entry_in("", "closed", "", told), 0);
	done();
}

TEST("a driver that is unloaded and loaded again has not forgotten what it gave out")
{
	const char *const variables[] = {"LD_LIBRARY_PATH", standing_in(), NULL};
	char program[256];
	snprintf(program, sizeof program, "%s/test/test/entry_reload", getenv("VGPU_TEST_BUILD"));
	machine(LIMITS);
	CHECK_EQ(run_with("", (char *const[]){program, NULL}, variables), 0);
	CHECK(strstr(output, "0 2 2 2 "));
	done();
	machine(LIMITS);
	CHECK_EQ(run((char *const[]){program, NULL}, NULL), 0);
	CHECK(strstr(output, "0 2 2 2 "));
	done();
}

TEST("variables hold as they were when the program was loaded")
{
	machine(NULL);
	entry("unset", (const char *const[]){"CUDA_DEVICE_MEMORY_LIMIT_0", "64m", NULL});
	done();
}

TEST("a program starts with errno 0 and no descriptor of ours")
{
	for (int i = 0; i < 2 && !sanitized(); i++) {
		machine(i ? NULL : LIMITS);
		CHECK_EQ(entry_in("", "begins", "", NULL), 0);
		char *bare = strdup(output);
		CHECK_EQ(entry_code("begins", "", NULL), 0);
		CHECK(!strcmp(bare, output));
		free(bare);
		done();
	}
}

#define LATER "vgpu-limits 1\nregion %s/later/vgpu.cache\ndevice 0 " U0 " memory=67108864 cores=50\n"

TEST("a region that can be made later gives out memory then, in the same process")
{
	machine(LATER);
	entry("region-later", NULL);
	CHECK_EQ(times(output, "libvgpu: error: "), 1);
	CHECK_EQ(times(output, "later/vgpu.cache: No such file or directory; "), 1);
	done();
}

TEST("a context that is made while the region cannot be is charged later")
{
	machine(LATER);
	entry("context-later", (const char *const[]){"FAKEGPU_CONTEXT", "20", NULL});
	done();
}

TEST("a region that processes of another version use gives out nothing until they have gone")
{
	machine(LIMITS);
	entry("another-version", NULL);
	CHECK_EQ(times(output, "vgpu.cache: processes with another version of this library use it; "), 1);
	done();
}

TEST("space that becomes free gives memory to those who wait, and to all together no more than the limit")
{
	installed("vgpu-limits 1\nregion %s/small/vgpu.cache\ndevice 0 " U0 " memory=67108864 cores=50\n",
		  "mkdir $DIR/small && mount -t tmpfs -o size=16m none $DIR/small", "probe_entry room-later");
}

#define NOT_YET "libvgpu: warning: the limits cannot be held yet: "

TEST("no free descriptor at the first call refuses memory only until there is one")
{
	machine(LIMITS);
	if (!sanitized()) /* a sanitizer has descriptors of its own */
		entry("descriptors", NULL);
	CHECK(sanitized() || times(output, NOT_YET "Too many open files") == 1);
	done();
}

TEST("a lease on the limits file while a program starts refuses memory only until it ends")
{
	machine(LIMITS);
	entry("leased", NULL);
	CHECK_EQ(times(output, NOT_YET "Resource temporarily unavailable"), 1);
	done();
}

TEST("lines go to the standard error that the program was given, redirected or not")
{
	machine(LIMITS);
	CHECK_EQ(entry_code("refuse", "2>told", NULL), 0);
	CHECK_EQ(times(content("told"), "libvgpu: warning: device 0: 100 MiB refused"), 1);
	CHECK_EQ(entry_code("refuse", "", NULL), 0);
	CHECK_EQ(times(output, "libvgpu: warning: device 0: 100 MiB refused"), 1);
	done();
}

TEST("a program's own file that is opened as descriptor 2 gets no line")
{
	machine(LIMITS);
	CHECK_EQ(entry_code("own-file", "2>told", NULL), 0);
	CHECK_EQ(strlen(content("data")), 0);
	CHECK_EQ(entry_code("own-number", "2>told", NULL), 0);
	CHECK_EQ(entry_code("late-file", "2>&-", NULL), 0);
	CHECK_EQ(strlen(content("data")), 0);
	done();
}

TEST("a standard error that nobody reads neither ends nor stops a program")
{
	machine(LIMITS);
	CHECK_EQ(entry_code("unheard", "", NULL), 0);
	CHECK_EQ(entry_code("unread", "", NULL), 0);
	done();
}

TEST("a standard error that may not become longer does not end a program")
{
	char command[256];
	machine(LIMITS);
	CHECK_EQ(entry_code("refuse", "", NULL), 0); /* makes the machine's files */
	snprintf(command, sizeof command, "head -c 1000 /dev/zero > %s/told", dir);
	CHECK(!system(command));
	CHECK_EQ(entry_code("longest-file", "2>>told", NULL), 0);
	done();
}

TEST("a library whose constructor uses CUDA loads while another thread makes the first call")
{
	static const char *const variable[] = {"CUDA_DEVICE_MEMORY_LIMIT_0", "64m", NULL};
	for (int i = 0; i < 2; i++) {
		machine(i ? NULL : LIMITS);
		for (int round = 0; round < 20; round++)
			entry("constructor", i ? variable : NULL);
		done();
	}
}

/* A copy of the driver under a name that says nothing, and our own names beside it. */
static void make_copies(void)
{
	char command[1024], path[256];
	snprintf(command, sizeof command, "cp %s/libcuda.so.1 %s/other.so",
		 getenv("VGPU_TEST_FAKE"), dir);
	CHECK(!system(command));
	snprintf(path, sizeof path, "%s/other.so", dir);
	setenv("ENTRY_COPY", path, 1);
	snprintf(path, sizeof path, "%s/test/test/entry_own.so", getenv("VGPU_TEST_BUILD"));
	setenv("ENTRY_OWN", path, 1);
}

TEST("a library's own function by a driver's name is found, and no copy of the driver is")
{
	machine(LIMITS);
	make_copies();
	entry("own-names", NULL);
	done();
}

TEST("each look-up ends where it would without the library, in ours instead of the driver's")
{
	static const char *const programs[] = {"entry_names", "entry_names_program",
					       "entry_names_library", "entry_names_alone"};
	for (int i = 0; i < 4; i++) {
		char path[256], bare[sizeof output];
		machine(LIMITS);
		make_copies();
		snprintf(path, sizeof path, "%s/test/test/%s", getenv("VGPU_TEST_BUILD"),
			 programs[i]);
		CHECK_EQ(run_with("", (char *const[]){path, NULL}, NULL), 0);
		strcpy(bare, output);
		CHECK_EQ(run((char *const[]){path, NULL}, NULL), 0);
		if (strcmp(bare, output)) {
			printf("    %s, without the library:\n%s    with it:\n%s", programs[i],
			       bare, output);
			CHECK(!"the same answers");
		}
		done();
	}
}

/* With a library that wraps dlsym and dlopen, in the order in which the two are preloaded. */
static void wrapped(const char *way, const char *place, const char *first, const char *second)
{
	char both[1024];
	const char *const variables[] = {"WRAPPER", way, "WRAPPER_PLACE", place, NULL};
	snprintf(both, sizeof both, "%s %s", first, second);
	machine(LIMITS);
	int code = entry_in(both, "wrapped", "", variables);
	if (code)
		printf("    %s, %s:\n%s\n", way, place, output);
	CHECK_EQ(code, 0);
	done();
}

TEST("a program that wraps dlsym and dlopen is limited, however it finds what it wraps")
{
	static const char *const ways[] = {"next", "anywhere", "handle"};
	const char *library = getenv("VGPU_TEST_PRELOAD");
	char wrapper[512];
	snprintf(wrapper, sizeof wrapper, "%s/test/test/entry_wrapper.so", getenv("VGPU_TEST_BUILD"));
	for (int i = 0; i < 3 && !sanitized(); i++) { /* a sanitizer wants to be first */
		wrapped(ways[i], "in front", wrapper, library);
		wrapped(ways[i], "behind", library, wrapper);
	}
}

TEST_MAIN
