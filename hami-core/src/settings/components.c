/* SPDX-License-Identifier: Apache-2.0 */
#include "settings/components.h"

void components_refresh(int device)
{
	for (unsigned i = 0; i < component_count; i++)
		if (components[i].refresh)
			components[i].refresh(device);
}

void components_after_fork(void)
{
	for (unsigned i = 0; i < component_count; i++)
		if (components[i].after_fork)
			components[i].after_fork();
}
