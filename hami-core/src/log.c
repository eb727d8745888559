/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "hamicore_abi.h"

/* The level, asked for each time: messages are rare, and there is no state to get wrong in a fork. */
static int threshold(void)
{
	const char *text = secure_getenv(ENV_LOG_LEVEL);
	return text && text[0] >= '0' && text[0] <= '9' && !text[1] ? text[0] - '0' : LOG_WARN;
}

void log_line(enum log_level level, const char *format, ...)
{
	static const char *const words[] = {"", "error", "warning", "info", "debug"};
	char line[640];
	int saved = errno;
	if ((int)level <= threshold()) {
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
