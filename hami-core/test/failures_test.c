/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failures_test.c: what is missing or broken around the library, and what programs then see. See
 * docs/libvgpu.md.
 */
#include "machine.h"

static const char small[] = "vgpu-limits 1\nregion %s/small/vgpu.cache\ndevice 0 " U0 " memory=67108864 cores=50\n";

/* As many processes as a container has, at once: none of them may be given a byte. */
#define NOTHING_FOR_ANY                                                                      \
	"for strict in '' 0 1; do for i in 1 2 3 4; do "                                     \
	"{ VGPU_STRICT=$strict $CLIENT alloc 1 expect ok; [ $? = 3 ] || echo LEAK; } & done; done; wait"

TEST("a region on a full or read-only file system gives out nothing, to any process")
{
	static const char *const cases[][2] = {
		{"size=64k", "No space left on device"}, /* no room */
		{"size=64m,nr_inodes=1", "No space left on device"}, /* no inode */
		{"ro", "Read-only file system"},
	};
	for (int i = 0; i < 3; i++) {
		char command[512], line[128];
		snprintf(command, sizeof command, "mkdir $DIR/small && mount -t tmpfs -o %s none $DIR/small && " NOTHING_FOR_ANY,
			 cases[i][0]);
		snprintf(line, sizeof line, "small/vgpu.cache: %s; ", cases[i][1]);
		in_container(small, command);
		CHECK(!strstr(output, "LEAK") && (geteuid() || strstr(output, line)));
	}
}

TEST("a program whose files may not become long is not ended by the making of the region")
{
	in_container(HEAD "device 0 " U0 " memory=67108864 cores=0\n",
		     /* makes the machine's files */
		     "$CLEAN $CLIENT alloc 1 expect ok && rm $DIR/vgpu.cache && "
		     "{ sh -c 'ulimit -f 100; exec env FAKEGPU_DIR=$DIR FAKEGPU_DEV=$DIR LD_LIBRARY_PATH=$FAKE "
		     "$CLIENT alloc 1 expect ok'; [ $? = 3 ]; }");
	CHECK(geteuid() || strstr(output, "vgpu.cache: File too large"));
}

TEST("a program whose files may not become long joins a region that is there")
{
	in_container(HEAD "device 0 " U0 " memory=67108864 cores=0\n",
		     "$CLIENT alloc 1 expect ok && sh -c 'ulimit -f 100; exec $CLIENT alloc 65 expect oom alloc 64 expect ok'");
	CHECK(!strstr(output, "vgpu.cache"));
}

TEST("without libcuda and NVML hooks answer as the loader's users expect")
{
	char program[256];
	snprintf(program, sizeof program, "%s/test/test/direct", getenv("VGPU_TEST_BUILD"));
	machine(LIMITS);
	CHECK_EQ(run((char *const[]){program, NULL}, (const char *const[]){"LD_LIBRARY_PATH", "/nonexistent", NULL}), 0);
	done();
}

TEST("a set-user-ID program is limited by the file and deaf to the environment")
{
	static const char suid[] = "chmod 755 $DIR && cp $CLIENT /usr/local/suid && chown 1 /usr/local/suid && chmod 4755 /usr/local/suid && "
				   "mount -t tmpfs none /var/cache && echo $FAKE > /etc/ld.so.conf && PATH=$PATH:/sbin:/usr/sbin ldconfig -X && chmod -R a+rwX $DIR && ";
	char command[1024];
	snprintf(command, sizeof command, "%s CUDA_DEVICE_MEMORY_LIMIT_0=900m /usr/local/suid alloc 65 expect oom alloc 64 expect ok", suid);
	in_container(LIMITS, command);
	/*
	 * from a place where no limits file belongs, since without its file it would refuse
	 * everything
	 */
	snprintf(command, sizeof command,
		 "%s cp /usr/local/vgpu/libvgpu.so /usr/local/ && "
		 "echo /usr/local/libvgpu.so > /etc/ld.so.preload && "
		 "CUDA_DEVICE_MEMORY_LIMIT_0=64m /usr/local/suid alloc 65 expect ok && "
		 "CUDA_DEVICE_MEMORY_LIMIT_0=64m $CLIENT alloc 65 expect oom", suid);
	in_container(NULL, command);
}

TEST("percentages that make no sense are told and count as unset, whatever they are")
{
	static const char *const values[] = {"-5", "half", "1e2", "50%", "99999999"};
	machine(NULL);
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		probe("unlimited", (const char *const[]){"CUDA_DEVICE_SM_LIMIT", values[i], NULL});
		CHECK(strstr(output, "CUDA_DEVICE_SM_LIMIT=") && strstr(output, "makes no sense"));
	}
	/* more than all is all */
	probe("unlimited", (const char *const[]){"CUDA_DEVICE_SM_LIMIT", "250", NULL});
	CHECK(strstr(output, "libvgpu") == NULL);
	done();
}

TEST_MAIN
