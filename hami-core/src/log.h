/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h: messages on file descriptor 2, one write each, no FILE, no allocation.
 * LIBCUDA_LOG_LEVEL: 0 none, 1 errors, 2 and warnings (default), 3 and information, 4 everything.
 */
#ifndef LOG_H
#define LOG_H

enum log_level { LOG_ERROR = 1, LOG_WARN = 2, LOG_INFO = 3, LOG_DEBUG = 4 };

__attribute__((format(printf, 2, 3))) void log_line(enum log_level level, const char *format, ...);

#endif
