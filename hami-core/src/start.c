/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start.c: the one place that names all parts of the library. Everything else knows the parts
 * below it only; what has to reach all of them goes through this table (settings/components.h).
 */
#include "compute/borrow.h"
#include "compute/limiter.h"
#include "context/capture.h"
#include "context/green.h"
#include "context/primary.h"
#include "memory/context_limits.h"
#include "memory/blocks.h"
#include "memory/graphs.h"
#include "memory/handles.h"
#include "memory/nvml_memory.h"
#include "memory/overhead.h"
#include "memory/pools.h"
#include "memory/sparse.h"
#include "model/pages.h"
#include "model/table.h"
#include "settings/components.h"
#include "shm/region.h"

const struct component components[] = {
	{.after_fork = region_after_fork},
	{.after_fork = table_reset},
	{.after_fork = pages_reset},
	{.after_fork = primary_after_fork},
	{.after_fork = green_after_fork},
	{.after_fork = capture_after_fork},
	{.after_fork = blocks_after_fork},
	{.after_fork = handles_after_fork},
	{.after_fork = sparse_after_fork},
	{.after_fork = context_limits_after_fork},
	{.refresh = pools_refresh, .after_fork = pools_after_fork},
	{.refresh = graphs_refresh, .after_fork = graphs_after_fork},
	{.after_fork = nvml_memory_after_fork},
	/* The last to refresh: what it finds is what the others do not explain. */
	{.refresh = overhead_reconcile, .after_fork = overhead_after_fork},
	{.after_fork = limiter_after_fork},
	{.after_fork = borrow_after_fork},
};
const unsigned component_count = sizeof components / sizeof *components;
