/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sized_test.c: what has a size before it is taken is refused before it is taken; ranges of several
 * kinds.
 */
#include "machine.h"
#include "sized.h"

TEST("a graph that allocates more than there is is refused at its launch, and the card gives "
     "nothing")
{
	sized("graph_refused", 64, 0, NULL);
}

TEST("a graph's memory counts however it was made: by hand, recorded, within another, uploaded")
{
	sized("graph_ways", 64, 0, NULL);
}

TEST("a graph is charged what it has at once, and what it leaves allocated until that is freed")
{
	sized("graph_reuse", 64, 0, NULL);
}

TEST("graphs on two devices never pass a limit, and alone none is refused that fits")
{
	sized("graph_alone", 64, 96, NULL);
}

TEST("graphs on two devices never pass a limit with threads, and all of it is to have afterwards")
{
	sized("graph_together", 64, 96, NULL);
}

TEST("stack, printf buffer and heap are refused by their size, and go with their context")
{
	sized("limits_refused", 64, 0, NULL);
}

TEST("a limit of a context replaces the one before, in the books as on the card")
{
	sized("limits_replaced", 64, 0, NULL);
}

TEST("threads that change limits of contexts never pass the limit")
{
	sized("limits_together", 64, 0, NULL);
}

TEST("one unmapping of a range credits all of ours in it, whatever lies between")
{
	sized("mixed_range", 64, 0, NULL);
}

TEST("ranges of any size with mappings of several kinds are credited to the byte")
{
	sized("mixed_random", 256, 0, NULL);
}

TEST_MAIN
