/* SPDX-License-Identifier: Apache-2.0 */
#include "truth_program.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const names[] = {
#define TRUTH_NAME(name, text) text,
	TRUTH_KINDS(TRUTH_NAME)
#undef TRUTH_NAME
};
uint64_t number_from(const char *variable, uint64_t otherwise)
{
	const char *text = getenv(variable);
	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static uint32_t all_kinds(void)
{
	return (1u << KIND_NODE) - 1;
}

static int draw_count(uint64_t *random, int most)
{
	uint64_t dice = truth_below(random, 10);
	return dice < 4	  ? 1
	       : dice < 7 ? 2 + (int)truth_below(random, 3)
			  : 5 + (int)truth_below(random, (uint64_t)most - 4);
}

static uint32_t draw_kinds(uint64_t *random)
{
	uint32_t kinds = 1u << truth_below(random, KIND_MIPMAP);
	uint64_t dice = truth_below(random, 10);
	if (dice < 5)
		return all_kinds();
	if (dice < 6)
		return 1u << KIND_PLAIN | 1u << KIND_MANAGED | 1u << KIND_PITCH;
	for (int i = 0; i < KIND_NODE; i++)
		kinds |= (uint32_t)(truth_below(random, 3) == 0) << i;
	return kinds;
}

static void override(struct truth_program *p)
{
	p->processes = (int)number_from("VGPU_TRUTH_PROCESSES", (uint64_t)p->processes);
	p->threads = (int)number_from("VGPU_TRUTH_THREADS", (uint64_t)p->threads);
	p->kinds = (uint32_t)number_from("VGPU_TRUTH_KINDS", p->kinds);
	p->sizes = (int)number_from("VGPU_TRUTH_SIZES", (uint64_t)p->sizes);
	p->kills = (int)number_from("VGPU_TRUTH_KILLS", (uint64_t)p->kills);
	p->rounds = (int)number_from("VGPU_TRUTH_ROUNDS", (uint64_t)p->rounds);
	p->context_mib = (int)number_from("VGPU_TRUTH_CONTEXT", (uint64_t)p->context_mib);
	p->steps = 20 + (p->containers ? 800 : 6000) / (p->processes * p->threads);
	p->steps = (int)number_from("VGPU_TRUTH_STEPS", (uint64_t)p->steps);
}

/* Two containers, or up to VGPU_TRUTH_CONTAINERS; none without it. */
static void put_into_containers(struct truth_program *p, uint64_t *random)
{
	int most = (int)number_from("VGPU_TRUTH_CONTAINERS", 0);
	if (most < 2)
		return;
	p->containers = truth_below(random, 3) ? 2 : most;
	if (p->processes < p->containers)
		p->processes = p->containers + (int)truth_below(random, 3);
	p->twins = 0; /* what one process forks is in one container */
	p->kills = truth_below(random, 4) != 0;
	p->rounds = (p->rounds + 1) / 2; /* many short programs: most of a round is waiting */
}

void draw_program(struct truth_program *p, uint64_t seed)
{
	static const uint64_t limits[][TRUTH_DEVICES] = {{64, 0}, {64, 96}, {0, 64},
							 {64, 0}, {2, 0},   {34, 64}};
	uint64_t random = seed;
	const uint64_t *l = limits[truth_below(&random, sizeof limits / sizeof *limits)];
	*p = (struct truth_program){.seed = seed,
				    .processes = draw_count(&random, TRUTH_WORKERS),
				    .threads = draw_count(&random, TRUTH_THREADS),
				    .limit = {l[0] << 20, l[1] << 20}};
	p->kinds = draw_kinds(&random);
	p->sizes = (int)(truth_below(&random, 8) % 5 % 3); /* mostly all sizes */
	p->rounds = 1 + (int)truth_below(&random, 4);
	p->twins = p->processes > 1 && truth_below(&random, 2);
	p->kills = p->processes > 1 && truth_below(&random, 3) == 0;
	p->context_mib = truth_below(&random, 6) == 0 && p->processes <= 3 ? 4 : 0;
	p->sparse = (int)truth_below(&random, 2);
	p->unmap = (int)truth_below(&random, 3);
	put_into_containers(p, &random);
	override(p);
	if (p->context_mib) { /* their memory cannot be refused: there are only those that were
				 there first */
		p->kinds &= ~(1u << KIND_CONTEXT);
		p->limit[0] = p->limit[0] ? 64 * (1 << 20) : 0;
		p->limit[1] = p->limit[1] ? 96 * (1 << 20) : 0;
	}
}

void print_program(const struct truth_program *p)
{
	printf("    program VGPU_TRUTH_SEED=0x%llx: %d processes%s x %d threads x %d steps x %d "
	       "rounds, %d containers, limits %llu and %llu MiB, "
	       "sizes %d, contexts %d MiB%s, answers %d and %d, kinds 0x%x:",
	       (unsigned long long)p->seed, p->processes,
	       p->twins && p->processes > 1 ? " (forked)" : "", p->threads, p->steps, p->rounds,
	       p->containers,
	       (unsigned long long)(p->limit[0] >> 20), (unsigned long long)(p->limit[1] >> 20),
	       p->sizes, p->context_mib, p->kills ? ", killed at random" : "", p->sparse, p->unmap,
	       p->kinds);
	for (int i = 0; i < KIND_NODE; i++)
		if (p->kinds & 1u << i)
			printf(" %s", names[i]);
	printf("\n");
}
