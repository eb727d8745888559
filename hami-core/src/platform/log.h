/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h: messages on the standard error that the program was started with, one write each, no
 * FILE, no allocation. Where descriptor 2 has become another file, or a line would block or raise
 * SIGPIPE, nothing is written. LIBCUDA_LOG_LEVEL, as it is when the library is loaded: 0 none, 1
 * errors, 2 and warnings (default), 3 and information, 4 everything.
 */
#ifndef LOG_H
#define LOG_H

enum log_level { LOG_ERROR = 1, LOG_WARN = 2, LOG_INFO = 3, LOG_DEBUG = 4 };

__attribute__((format(printf, 2, 3))) void log_line(enum log_level level, const char *format, ...);

#endif
