/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.h: the time of the fake driver. It is CLOCK_MONOTONIC, or, where FAKEGPU_CLOCK says
 * <place>/<count>, a clock of its own that `count` processes of one FAKEGPU_DIR share.
 *
 * That clock stands until all of them have come. Then one process runs at a time: the one that
 * wants to wake first, the lower place first among equals; time jumps to when that is. What a
 * program does between two sleeps takes no time but what fg_clock_spend says. So a run is the same
 * every time, and takes as long as its arithmetic. One thread of a process at a time; a process
 * that exits leaves the clock to the others, which stand still until another process has come to its
 * place, if it has said that one will.
 */
#ifndef FAKEGPU_CLOCK_H
#define FAKEGPU_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#define FG_PLACES 40

/*
 * Joins the clock that FAKEGPU_CLOCK names, waiting for the others; nothing without it. 0, or -1
 * with a sentence in error. pre: fg_state_open has succeeded.
 */
int fg_clock_open(const char *dir, char *error, size_t size);

/* This process ends without calling exit(). */
void fg_clock_leave(void);
/* Another process comes to this place: until then the clock stands when this one has left. */
void fg_clock_expect_heir(void);

/* This process's place on the clock of its own, or -1 in real time. */
int fg_clock_place(void);

/*
 * Room for what lies in the device's time, beside that clock; all zero at first. Only the process
 * whose turn it is touches it.
 */
struct fg_timeline *fg_clock_timelines(void);

/* Nanoseconds. */
uint64_t fg_clock_now(void);
void fg_clock_sleep_until(uint64_t ns);
/* The host's time for a call of the driver; nothing in real time, where it takes its own. */
void fg_clock_spend(uint64_t ns);
/*
 * The end of a call that has given the device something to do: where FAKEGPU_STALL says so, the
 * host is held up there, too.
 */
void fg_clock_return(void);

#endif
