/* SPDX-License-Identifier: Apache-2.0 */
/* entry_own.c: a library with a function of its own by the name of a driver's. */
int cuInit(unsigned int flags);
int cuInit(unsigned int flags)
{
	return 4711 + (int)flags;
}

int own_cuInit(unsigned int flags) __attribute__((alias("cuInit")));
