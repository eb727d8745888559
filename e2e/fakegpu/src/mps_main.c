/* SPDX-License-Identifier: Apache-2.0 */
/* mps_main.c: nvidia-cuda-mps-control, a stand-in: options, and the side that sends commands. */
#define _GNU_SOURCE
#include "mps.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

void mps_log(struct mps_daemon *d, const char *format, ...)
{
	struct timespec now;
	struct tm local;
	char stamp[32];
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &local);
	strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &local);
	fprintf(d->control_log, "[%s.%03ld Control %5d] ", stamp, now.tv_nsec / 1000000, (int)getpid());
	va_list args;
	va_start(args, format);
	vfprintf(d->control_log, format, args);
	va_end(args);
	fputc('\n', d->control_log);
	fflush(d->control_log);
}

static const char *directory(const char *variable, const char *otherwise)
{
	const char *value = getenv(variable);
	return value && *value ? value : otherwise;
}

static int address(const char *pipe, struct sockaddr_un *a)
{
	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	return snprintf(a->sun_path, sizeof a->sun_path, "%s/control", pipe) < (int)sizeof a->sun_path ? 0 : -1;
}

static int dial(const char *pipe)
{
	struct sockaddr_un a;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && (address(pipe, &a) || connect(fd, (struct sockaddr *)&a, sizeof a))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Sends one line and prints the answer; -1 when there is no daemon. */
static int ask(const char *pipe, const char *line)
{
	int fd = dial(pipe);
	char text[4096];
	ssize_t n;
	if (fd < 0)
		return -1;
	if (write(fd, line, strlen(line)) < 0)
		perror("nvidia-cuda-mps-control");
	while ((n = read(fd, text, sizeof text)) > 0)
		fwrite(text, 1, (size_t)n, stdout);
	close(fd);
	return fflush(stdout);
}

static int interact(const char *pipe)
{
	char line[MPS_LINE];
	int code = 0, any = 0;
	while (fgets(line, sizeof line, stdin)) {
		any = 1;
		if (line[strspn(line, " \t\r\n")] == 0)
			continue;
		if (ask(pipe, line))
			return printf("Cannot find MPS control daemon process\n"), 1;
	}
	if (!any && dial(pipe) < 0)
		code = (printf("Cannot find MPS control daemon process\n"), 1);
	return code;
}

/* The devices that CUDA_VISIBLE_DEVICES leaves, by UUID or index. */
static int choose_devices(struct mps_daemon *d)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	char text[1024], *cursor = text, *word;
	snprintf(text, sizeof text, "%s", visible ? visible : "");
	for (int i = 0; !visible && i < d->topology.count; i++)
		d->gpu[d->count++] = &d->topology.gpu[i];
	while (visible && (word = strsep(&cursor, ",")) != NULL) {
		const struct fg_gpu *hit = NULL;
		for (int i = 0; i < d->topology.count; i++) {
			char index[12];
			snprintf(index, sizeof index, "%d", i);
			if (!strcmp(word, index) || (!strncmp(word, "GPU-", 4) && !strncasecmp(d->topology.gpu[i].uuid, word, strlen(word))))
				hit = &d->topology.gpu[i];
		}
		if (!hit || d->count == FG_MAX_DEVICES)
			break;
		d->gpu[d->count++] = hit;
	}
	return d->count ? 0 : -1;
}

/* How many clients one server takes, by NVIDIA's MPS guide. */
static int clients_allowed(const struct mps_daemon *d)
{
	for (int i = 0; i < d->count; i++)
		if (d->gpu[i]->cc_major < 7)
			return 16;
	return d->topology.cuda_major * 100 + d->topology.cuda_minor >= 1301 ? 60 : 48;
}

static int prepare(struct mps_daemon *d)
{
	char path[512], error[768];
	struct sockaddr_un a;
	int fd = dial(d->pipe);
	if (fd >= 0)
		return printf("An instance of this daemon is already running\n"), close(fd), 1;
	if (fg_topology_read(fg_dir(), &d->topology, error, sizeof error) || choose_devices(d))
		return printf("No device is visible to the daemon\n"), 1;
	if (d->partitioned && !mps_partitions_known(&d->topology))
		return printf("Invalid option: static partitioning is not known\n"), 1;
	(void)mkdir(d->pipe, 0755);
	(void)mkdir(d->log, 0755);
	snprintf(path, sizeof path, "%s/control.log", d->log);
	d->control_log = fopen(path, "ae");
	if (!d->control_log)
		return printf("Cannot open %s: %s\n", path, strerror(errno)), 1;
	d->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (address(d->pipe, &a))
		return printf("The pipe directory's name is too long\n"), 1;
	(void)unlink(a.sun_path);
	if (bind(d->listener, (struct sockaddr *)&a, sizeof a) || chmod(a.sun_path, 0666) || listen(d->listener, 128))
		return printf("Cannot listen on %s: %s\n", a.sun_path, strerror(errno)), 1;
	d->allowed = clients_allowed(d);
	return 0;
}

static int write_pid(const struct mps_daemon *d, pid_t pid)
{
	char path[512];
	snprintf(path, sizeof path, "%s/nvidia-cuda-mps-control.pid", d->pipe);
	FILE *f = fopen(path, "we");
	if (!f)
		return -1;
	fprintf(f, "%d\n", (int)pid);
	return fclose(f);
}

static int start(struct mps_daemon *d, int background)
{
	int code = prepare(d);
	if (code)
		return code;
	if (background) {
		pid_t pid = fork();
		if (pid < 0)
			return perror("fork"), 1;
		if (pid > 0) /* the socket listens already */
			return write_pid(d, pid) ? 1 : 0;
		(void)setsid();
		int null = open("/dev/null", O_RDWR);
		for (int fd = 0; fd < 3; fd++)
			(void)dup2(null, fd);
		(void)chdir("/");
	}
	signal(SIGPIPE, SIG_IGN);
	if (!background && write_pid(d, getpid()))
		return 1;
	return mps_run(d);
}

/* The CUDA version, as in 13010 for 13.1. */
static int version(void)
{
	struct fg_topology t;
	char error[768];
	if (fg_topology_read(fg_dir(), &t, error, sizeof error))
		return printf("%s\n", error), 1;
	return printf("%d\n", t.cuda_major * 1000 + t.cuda_minor * 10), 0;
}

static int usage(void)
{
	printf("usage: nvidia-cuda-mps-control [-d | -f] [-v] [-S | --static-partitioning] [-multiuser-server]\n"
	       "  -d  start the daemon in the background    -f  in the foreground    -v  print the version\n"
	       "  -multiuser-server  let all users share one server\n");
	struct fg_topology t;
	char error[768];
	if (!fg_topology_read(fg_dir(), &t, error, sizeof error) && mps_partitions_known(&t))
		printf("  -S, --static-partitioning  clients get partitions made by sm_partition\n");
	printf("without -d or -f it reads commands: see its manual page\n");
	return 0;
}

int main(int argc, char **argv)
{
	static struct mps_daemon d = {.defaults = {.percentage = 100}};
	int background = 0, foreground = 0;
	d.pipe = directory("CUDA_MPS_PIPE_DIRECTORY", MPS_PIPE_DEFAULT);
	d.log = directory("CUDA_MPS_LOG_DIRECTORY", MPS_LOG_DEFAULT);
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "-d"))
			background = 1;
		else if (!strcmp(argv[i], "-f"))
			foreground = 1;
		else if (!strcmp(argv[i], "-S") || !strcmp(argv[i], "--static-partitioning"))
			d.partitioned = 1;
		else if (!strcmp(argv[i], "-multiuser-server"))
			d.multiuser = 1;
		else if (!strcmp(argv[i], "-v"))
			return version();
		else if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help"))
			return usage();
		else
			return printf("Invalid option: %s\n", argv[i]), 1;
	}
	if (d.multiuser && geteuid() != 0)
		return printf("-multiuser-server needs a superuser\n"), 1;
	if (background || foreground)
		return start(&d, background);
	return interact(d.pipe);
}
