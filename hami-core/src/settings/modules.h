/* SPDX-License-Identifier: Apache-2.0 */
/*
 * modules.h: the moments at which every part of the library has to do something.
 * One constant table in start.c names the parts; lower layers run it without knowing them.
 */
#ifndef MODULES_H
#define MODULES_H

/* Either function may be NULL. */
struct module {
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
extern const struct module modules[];
extern const unsigned module_count;

/* Runs every module's refresh. Takes locks of theirs: hold none. */
void modules_refresh(int device);
/* Runs every module's after_fork. */
void modules_after_fork(void);

#endif
