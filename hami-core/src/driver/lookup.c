/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup.c: dlsym and dlvsym by name. Every program in the container comes through
 * here, some before main and before their own libraries are ready (an allocator or a
 * sanitizer that looks its functions up): so this file and prim_elf.c call nothing of
 * the C library that others replace, start nothing and keep no state but two pointers.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "platform/prim.h"
#include "driver/resolve.h"

/* dlsym.S jumps there. */
__attribute__((visibility("hidden"))) void *vgpu_real_dlsym, *vgpu_real_dlvsym;
__attribute__((visibility("hidden"))) void *vgpu_route(void *handle, const char *name,
						       const char *version, void *caller);

static void find_real_dlsym(void)
{
	static const char *const libc[] = {"libc.so.", "libc-", "libdl.so.", "libdl-", NULL};
	if (__atomic_load_n(&vgpu_real_dlsym, __ATOMIC_ACQUIRE))
		return;
	vgpu_real_dlvsym = prim_symbol_early(libc, "dlvsym");
	__atomic_store_n(&vgpu_real_dlsym, prim_symbol_early(libc, "dlsym"), __ATOMIC_RELEASE);
}

__attribute__((constructor)) static void at_load(void)
{
	prim_note_start();
	find_real_dlsym();
}

void *lookup_real_dlsym(void *handle, const char *name)
{
	find_real_dlsym();
	void *(*real)(void *, const char *) = (void *(*)(void *, const char *))vgpu_real_dlsym;
	return real ? real(handle, name) : NULL;
}

void *lookup_real_dlvsym(void *handle, const char *name, const char *version)
{
	find_real_dlsym();
	void *(*real)(void *, const char *, const char *) =
		(void *(*)(void *, const char *, const char *))vgpu_real_dlvsym;
	return real ? real(handle, name, version) : NULL;
}

static int is_capital(char c)
{
	return c >= 'A' && c <= 'Z';
}

/* cuX... or nvmlX...; curl_easy_init, cublasCreate and the like are not the driver's. */
static int is_driver_name(const char *n)
{
	if (n[0] == 'c')
		return n[1] == 'u' && is_capital(n[2]);
	return n[0] == 'n' && n[1] == 'v' && n[2] == 'm' && n[3] == 'l' && is_capital(n[4]);
}

static int compare_names(const char *a, const char *b)
{
	for (; *a && *a == *b; a++, b++)
		;
	return (unsigned char)*a - (unsigned char)*b;
}

/* The symbol of this name if it is hooked, else NULL. */
static const struct symbol *find_hooked_symbol(const char *name)
{
	int low = 0, high = SYMBOL_COUNT;
	while (low < high) {
		int middle = (low + high) / 2, order = compare_names(name, symbols[middle].name);
		if (order == 0)
			return symbols[middle].hook ? &symbols[middle] : NULL;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

const char *const driver_names[LIBRARY_COUNT] = {"libcuda.so.driver", "libnvidia-ml.so.driver"};

/* Functions that every driver has and this library does not: where they are seen, a driver is. */
static const char *const driver_marks[LIBRARY_COUNT] = {"cuDriverGetVersion", "nvmlInit_v2"};

/* Has the C library say in dlerror what it would have said of this name. */
static void note_missing(void *handle, const char *name)
{
	static const char why[] = " (not in this driver)";
	char text[96];
	unsigned n = 0;
	for (; *name && n < sizeof text - sizeof why; n++)
		text[n] = *name++;
	for (unsigned i = 0; i < sizeof why; i++)
		text[n++] = why[i];
	(void)lookup_real_dlsym(handle, text);
}

#define NOT_THERE ((void *)1) /* dlsym.S answers NULL */

/* What the C library answers to this question, as far as that does not depend on who asks. */
static void *real_answer(void *handle, const char *name, const char *version)
{
	return version ? lookup_real_dlvsym(handle, name, version)
		       : lookup_real_dlsym(handle, name);
}

/*
 * A function of this name that is neither the driver's nor ours and that the asker would have got
 * without us; NULL when there is none. A linked library that is loaded behind us counts, too:
 * only because of us it is not found.
 */
static void *find_foreign_definition(void *handle, const char *name, void *answer, void *caller)
{
	if (answer && !prim_is_driver(answer))
		return answer;
	void *own = NULL;
	if (handle == RTLD_NEXT)
		own = prim_definition(caller, name);
	else if (handle == RTLD_DEFAULT || prim_is_program(handle))
		own = prim_definition(NULL, name);
	return own && !prim_is_driver(own) ? own : NULL;
}

/* An address in the driver that a look-up from there can see; NULL: none is loaded there. */
static void *find_visible_driver(void *handle, enum library library, void *caller)
{
	static const char *const any[] = {"", NULL};
	const char *mark = driver_marks[library];
	if (handle == RTLD_NEXT) {
		void *behind = prim_definition(caller, mark);
		if (behind)
			return behind;
	}
	/* A library that was loaded later also sees what was loaded with it */
	if ((handle == RTLD_NEXT || handle == RTLD_DEFAULT) && prim_is_late(caller))
		return prim_symbol(any, mark);
	if (handle != RTLD_NEXT)
		return lookup_real_dlsym(handle, mark);
	void *global = lookup_real_dlsym(RTLD_DEFAULT, mark);
	return global && prim_is_late(global) ? global : NULL;
}

/*
 * What dlsym or dlvsym (version not NULL) answers for a function of the driver. A hook is given out
 * only in place of such a function, and never to the driver's own libraries, which must find
 * themselves. Where something stands in for the driver, it has all hooks: whether there is such a
 * function the driver's own file tells.
 */
static void *route_hooked(void *handle, const struct symbol *s, const char *version, void *caller)
{
	void *own;
	int standing_in = prim_symbol_in(driver_names[s->library], s->name, &own);
	if (standing_in && own && prim_is_nvidia(caller))
		return own;
	void *driver = find_visible_driver(handle, s->library, caller);
	void *answer = handle == RTLD_NEXT ? NULL : real_answer(handle, s->name, version);
	void *other = version ? answer && !prim_is_driver(answer) ? answer : NULL
			      : find_foreign_definition(handle, s->name, answer, caller);
	if (other)
		return other;
	if (!driver || prim_object_lacks(driver, s->name)) {
		note_missing(handle, s->name);
		return NOT_THERE;
	}
	if (prim_is_nvidia(caller) || (!answer && handle != RTLD_NEXT && handle != RTLD_DEFAULT))
		return NULL;
	return s->hook;
}

/*
 * A program that wraps dlsym asks for the function that it wraps. It gets ours where it would get
 * the C library's own, which knows of no hooks.
 */
static void *route_lookup(void *handle, const struct lookup_function *f, const char *version,
			  void *caller)
{
	static const char *const libc[] = {"libc.so.", "libc-", "libdl.so.", "libdl-", NULL};
	void *answer;
	if (prim_is_nvidia(caller))
		return NULL;
	if (handle != RTLD_NEXT)
		answer = real_answer(handle, f->name, version);
	else if (version)
		answer = lookup_real_dlvsym(RTLD_DEFAULT, f->name, version);
	else
		answer = prim_definition(caller, f->name);
	if (!answer && handle == RTLD_NEXT && !version && prim_is_late(caller))
		return f->ours;
	return answer && answer == prim_symbol_early(libc, f->name) ? f->ours : NULL;
}

static const struct lookup_function *find_lookup_function(const char *name)
{
	for (const struct lookup_function *f = lookup_functions; name[0] == 'd' && f->name; f++)
		if (compare_names(name, f->name) == 0)
			return f;
	return NULL;
}

/* What dlsym or dlvsym (version not NULL) answers; NULL: let the real one answer. */
void *vgpu_route(void *handle, const char *name, const char *version, void *caller)
{
	find_real_dlsym();
	const struct lookup_function *f = name ? find_lookup_function(name) : NULL;
	if (f)
		return route_lookup(handle, f, version, caller);
	const struct symbol *s = name && is_driver_name(name) ? find_hooked_symbol(name) : NULL;
	return s ? route_hooked(handle, s, version, caller) : NULL;
}
