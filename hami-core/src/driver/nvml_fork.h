/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml_fork.h: NVML in a child of a fork. It has the locks of its parent's other threads, which
 * nobody there gives back: a call may hang for ever.
 */
#ifndef NVML_FORK_H
#define NVML_FORK_H

/*
 * Whether NVML answers in this process. Asked once in each child of a fork, by a copy of that
 * process, which may take 5 s where NVML does not. Thread-safe.
 */
int nvml_answers(void);

#endif
