/* SPDX-License-Identifier: Apache-2.0 */
/*
 * components.h: the moments at which every part of the library has to do something.
 * One constant table in start.c names the parts; lower layers run it without knowing them.
 */
#ifndef COMPONENTS_H
#define COMPONENTS_H

/* Either function may be NULL. */
struct component {
	/*
	 * Reads again what a device's books rest on, before somebody is refused. May call the
	 * driver.
	 */
	void (*refresh)(int device);
	/*
	 * In a child after fork: forgets the parent's state. Other threads of the parent may have
	 * held locks.
	 */
	void (*after_fork)(void);
};

/* In the order in which they run. Defined in start.c. */
extern const struct component components[];
extern const unsigned component_count;

/* Runs every component's refresh. Takes locks of theirs: hold none. */
void components_refresh(int device);
/* Runs every component's after_fork. */
void components_after_fork(void);

#endif
