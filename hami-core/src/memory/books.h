/* SPDX-License-Identifier: Apache-2.0 */
/*
 * books.h: takes room in the container's books for this process, before the driver is asked.
 * It also tells whether the books have grown meanwhile, for those who compare them with the card.
 * Thread-safe.
 */
#ifndef BOOKS_H
#define BOOKS_H

#include <stdint.h>

/* Reserves bytes of a device (an index in the limits) once, without making room first. 0, or -1. */
int books_reserve(int device, uint64_t bytes);

/* Books bytes that the driver has taken already, over the limit if need be. */
void books_force(int device, uint64_t bytes);

/* A number that changes whenever this process has booked more. */
uint64_t books_growth(int device);
/* The driver has been given room that books_reserve did not see. */
void books_note_growth(int device);

#endif
