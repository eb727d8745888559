/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_mps.h: this process as a client of MPS, and the compute mode for one that is none. */
#ifndef FAKEGPU_CUDA_MPS_H
#define FAKEGPU_CUDA_MPS_H

#include "cuda_fake.h"

/*
 * Connects to the daemon of CUDA_MPS_PIPE_DIRECTORY, if one listens, and leaves only its
 * devices in the list. May wait for another user's clients. Under fake.mutex.
 */
CUresult fg_mps_attach(struct fg_gpu **all, int *count);
/* Whether the server is still there: CUDA_SUCCESS for a process that is no client. */
CUresult fg_mps_alive(void);
/* The right to contexts on a device. Under fake.mutex. */
CUresult fg_mps_contexts(int ordinal);
/* Whether the process may take so many bytes more than it has. */
int fg_mps_admits(int ordinal, uint64_t used, uint64_t bytes);
/* Free memory as a client with a limit is told it. */
uint64_t fg_mps_free(int ordinal, uint64_t own, uint64_t free_bytes);
/* Multiprocessors the process may use. */
int fg_mps_sms(int ordinal, int sms);
void fg_mps_after_fork(void);

#endif
