/* SPDX-License-Identifier: Apache-2.0 */
/*
 * truth_program.h: random programs of the truth test. A program is its seed, but for what
 * VGPU_TRUTH_PROCESSES, _THREADS, _STEPS, _ROUNDS, _KINDS, _SIZES, _KILLS, _CONTEXT and
 * _CONTAINERS say instead.
 */
#ifndef TRUTH_PROGRAM_H
#define TRUTH_PROGRAM_H

#include "truth_board.h"

/* A number from the environment. */
uint64_t number_from(const char *variable, uint64_t otherwise);
void draw_program(struct truth_program *p, uint64_t seed);
void print_program(const struct truth_program *p);

#endif
