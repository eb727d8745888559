/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "platform/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "hamicore_abi.h"
#include "platform/prim.h"

/*
 * As they were when the library was loaded: by then the program has not opened anything of its
 * own.
 */
static struct {
	int known;
	int level;
	int open; /* there was a standard error */
	unsigned long long file[2], born;
} self;

__attribute__((constructor)) static void note_stderr(void)
{
	int saved = errno;
	if (__atomic_load_n(&self.known, __ATOMIC_ACQUIRE))
		return;
	const char *text = secure_getenv(ENV_LOG_LEVEL);
	int is_digit = text && text[0] >= '0' && text[0] <= '9' && !text[1];
	self.level = is_digit ? text[0] - '0' : LOG_WARN;
	self.open = prim_identity(STDERR_FILENO, self.file) == 0;
	self.born = self.open ? prim_birth_ns(STDERR_FILENO) : 0;
	__atomic_store_n(&self.known, 1, __ATOMIC_RELEASE);
	errno = saved;
}

/*
 * Whether descriptor 2 is still the file that it was: a program that has closed it may have a
 * file of its own there. And whether that takes a line at once: a full pipe would stop the
 * program, and one that nobody reads end it.
 */
static int can_log(void)
{
	unsigned long long now[2];
	return self.open && prim_identity(STDERR_FILENO, now) == 0 && now[0] == self.file[0] &&
	       now[1] == self.file[1] && prim_birth_ns(STDERR_FILENO) == self.born &&
	       prim_can_write(STDERR_FILENO);
}

void log_line(enum log_level level, const char *format, ...)
{
	static const char *const words[] = {"", "error", "warning", "info", "debug"};
	char line[640];
	int saved = errno;
	note_stderr();
	if ((int)level <= self.level && can_log()) {
		int n = snprintf(line, sizeof line, "libvgpu: %s: ", words[level]);
		va_list args;
		va_start(args, format);
		int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
		va_end(args);
		int room = (int)sizeof line - n - 2;
		n += m < 0 ? 0 : m < room ? m : room;
		line[n++] = '\n';
		if (write(STDERR_FILENO, line, (size_t)n) < 0) {
			/* nobody is listening */
		}
	}
	errno = saved;
}
