/* SPDX-License-Identifier: Apache-2.0 */
#include "settings/modules.h"

void modules_refresh(int device)
{
	for (unsigned i = 0; i < module_count; i++)
		if (modules[i].refresh)
			modules[i].refresh(device);
}

void modules_after_fork(void)
{
	for (unsigned i = 0; i < module_count; i++)
		if (modules[i].after_fork)
			modules[i].after_fork();
}
