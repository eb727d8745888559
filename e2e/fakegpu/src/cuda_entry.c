/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_entry.c: cuGetProcAddress in both its forms, error names, driver version. */
#include "cuda_exports.h"
#include "cuda_fake.h"
#include "mps.h"

#include <stdlib.h>
#include <string.h>

/* Some drivers give other pointers out here than to dlsym: with FAKEGPU_PROC_POINTERS=other so does this one. */
#if defined(__x86_64__)
#define JUMP "jmp "
#elif defined(__aarch64__)
#define JUMP "b "
#endif
#define FG_ENTRY(base, symbol, since, per_thread, args)                     \
	extern char other_##symbol[] __attribute__((visibility("hidden"))); \
	__asm__(".pushsection .text\n.globl other_" #symbol "\n.hidden other_" #symbol "\nother_" #symbol ": " JUMP #symbol "\n.popsection");
#include "cuda_entries.def"
#undef FG_ENTRY

const struct fg_entry fg_entries[] = {
#define FG_ENTRY(base, symbol, since, per_thread, args) {#base, #symbol, since, per_thread, (void *)symbol, (void *)other_##symbol},
#include "cuda_entries.def"
#undef FG_ENTRY
};
const size_t fg_entry_count = sizeof fg_entries / sizeof *fg_entries;

/* The newest variant not newer than `version`; a per-thread twin only when asked for. */
static const struct fg_entry *select_entry(const char *base, int version, int per_thread, int *known)
{
	const struct fg_entry *best = NULL;
	for (size_t i = 0; i < fg_entry_count; i++) {
		const struct fg_entry *e = &fg_entries[i];
		if (strcmp(e->base, base) || e->since > fg_generation)
			continue;
		*known = 1;
		if (e->since > version || (e->per_thread && !per_thread))
			continue;
		if (!best || e->per_thread > best->per_thread ||
		    (e->per_thread == best->per_thread && e->since >= best->since))
			best = e;
	}
	return best;
}

FG_EXPORT void *fakegpu_function(const char *symbol);

/* For test programs: a function of this library, whoever stands in front of it. */
void *fakegpu_function(const char *symbol)
{
	for (size_t i = 0; i < fg_entry_count; i++)
		if (!strcmp(fg_entries[i].symbol, symbol))
			return fg_entries[i].address;
	return NULL;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status)
{
	if (!symbol || !pfn || flags > 2)
		return CUDA_ERROR_INVALID_VALUE;
	int known = 0;
	const struct fg_entry *e =
		select_entry(symbol, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &known);
	if (status)
		*status = e ? CU_GET_PROC_ADDRESS_SUCCESS
			    : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	const char *pointers = getenv("FAKEGPU_PROC_POINTERS");
	*pfn = !e ? NULL : pointers && !strcmp(pointers, "other") ? e->other : e->address;
	return e || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND; /* who asks for the status learns it there */
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags)
{
	void *found;
	CUresult r = cuGetProcAddress_v2(symbol, pfn ? &found : NULL, version, flags, NULL);
	if (r == CUDA_SUCCESS)
		*pfn = found; /* untouched otherwise */
	return r;
}

static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {
	{CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
	{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
	{CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
	{CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	{MPS_ERROR_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
	{MPS_ERROR_CONNECTION_FAILED, "CUDA_ERROR_MPS_CONNECTION_FAILED", "MPS client failed to connect to the MPS control daemon or the MPS server"},
	{MPS_ERROR_RPC_FAILURE, "CUDA_ERROR_MPS_RPC_FAILURE", "the remote procedural call between the MPS server and the MPS client failed"},
	{MPS_ERROR_SERVER_NOT_READY, "CUDA_ERROR_MPS_SERVER_NOT_READY", "MPS server is not ready to accept new MPS client requests"},
	{MPS_ERROR_MAX_CLIENTS_REACHED, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "the hardware resources required to create MPS client have been exhausted"},
	{MPS_ERROR_CLIENT_TERMINATED, "CUDA_ERROR_MPS_CLIENT_TERMINATED", "the MPS client has been terminated by the server"},
	{MPS_ERROR_INVALID_RESOURCE_CONFIGURATION, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", "invalid resource configuration"},
	{CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult describe(CUresult error, const char **out, int want_name)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == error)
			*out = want_name ? errors[i].name : errors[i].text;
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
	return describe(error, text, 1);
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
	return describe(error, text, 0);
}

CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	struct fg_topology t;
	char error[256];
	if (fg_topology_read(fg_dir(), &t, error, sizeof error))
		return CUDA_ERROR_UNKNOWN;
	int told = t.cuda_major * 1000 + t.cuda_minor * 10;
	*version = told < fg_generation ? told : fg_generation;
	return CUDA_SUCCESS;
}
