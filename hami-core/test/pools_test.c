/* SPDX-License-Identifier: Apache-2.0 */
/* pools_test.c: the limit and stream-ordered memory, by what the fake card itself has given out. */
#include "machine.h"
#include "sized.h"

TEST("a pool is charged to its own device, whatever stream it is used by: limited there and free "
     "here")
{
	sized("across", 0, 64, NULL);
}

TEST("a pool is charged to its own device, whatever stream it is used by: free there and limited "
     "here")
{
	sized("across", 64, 0, NULL);
}

TEST("a pool is charged to its own device, whatever stream it is used by: both limited")
{
	sized("across", 64, 128, NULL);
}

TEST("pools of two devices never pass a limit, and alone nothing is refused that fits")
{
	sized("alone", 160, 256, NULL);
}

TEST("pools of two devices never pass a limit with threads, and all of it is to have afterwards")
{
	sized("together", 160, 256, NULL);
	sized("together", 0, 96, NULL);
}

TEST("of three threads that meet at the limit of a pool, as many are served as fit")
{
	sized("meeting", 64, 0, NULL);
}

TEST("what a pool gives back when its process has waited, another process has at once")
{
	sized("given_back", 64, 0, NULL);
}

TEST("a pool that grows by other pieces than expected teaches the library its own")
{
	sized("other_granule", 64, 0, (const char *const[]){"FAKEGPU_POOL", "2", NULL});
	sized("other_granule", 160, 0, (const char *const[]){"FAKEGPU_POOL", "64", NULL});
}

TEST_MAIN
