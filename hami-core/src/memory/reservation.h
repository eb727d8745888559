/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reservation.h: takes room in the container's books for this process, before the driver is asked.
 * It also tells whether the books have grown meanwhile, for those who compare them with the card.
 * Thread-safe.
 */
#ifndef RESERVATION_H
#define RESERVATION_H

#include <stdint.h>

/* Reserves bytes of a device (an index in the limits) once, without making room first. 0, or -1. */
int reservation_try(int device, uint64_t bytes);

/* Books bytes that the driver has taken already, over the limit if need be. */
void reservation_force(int device, uint64_t bytes);

/* A number that changes whenever this process has booked more. */
uint64_t reservation_generation(int device);
/* The driver has been given room that reservation_try did not see. */
void reservation_bump_generation(int device);

#endif
