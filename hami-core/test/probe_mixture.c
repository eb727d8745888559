/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_mixture.c: a program of random kernels on the fake driver's own clock, for
 * mixtures_test.c.
 *
 *	probe_mixture <seed> <us>[*<weight>],... <seconds> [<word>=<value>]...
 *
 * Each launch takes one of the times, drawn by their weights.
 *
 *	later=<ms>:<us>...         from then on one of these instead
 *	own=1                      each time is a kernel of its own; else one that is told its time
 *	sizes=<n>                  each launch has 1 to n blocks, at random
 *	grows=1                    and takes the longer the more it has: its time is their mean
 *	streams=<n>                launches go to so many streams in turn
 *	graph=<n>                  a launch is one of four graphs of n kernels
 *	sync=<n>                   waits after every n launches
 *	wait=poll                  waits by asking whether the stream has ended, 20 us apart
 *	rest=<us>                  and pauses then
 *	context=<ms>               changes to a new context, and destroys the old one with its work
 *	life=<ms>                  ends so long after its first launch; another process follows
 *	end=exit|now               by exit, or by _exit; work may be in flight either way
 *	from=<ms> till=<ms>        works in that time alone
 *
 * Exit code 75 asks for another process at the same place.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_abi.h"

CUresult cuInit(unsigned);
CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuModuleLoadData(CUmodule *, const void *);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			unsigned, CUstream, void **, void **);
CUresult cuStreamCreate(CUstream *, unsigned);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamQuery(CUstream);
CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
uint64_t fakegpu_now(void);
void fakegpu_sleep_until(uint64_t ns);
void fakegpu_expect_heir(void);
void fakegpu_leave(void);

#define START_NS 1000000000000ULL /* of the clock: e2e/fakegpu/src/clock.c */
#define MOST 16
#define GRAPHS 4
#define NEED(what)                                                                                 \
	do {                                                                                       \
		if (!(what))                                                                       \
			exit((fprintf(stderr, "not true: %s\n", #what), 1));                       \
	} while (0)

struct costs {
	unsigned us[MOST], weight[MOST], sum;
	int count;
};

static struct {
	struct costs costs, later;
	unsigned long later_ms, own, streams, graph, sync, poll, rest, context, life, now, from, till,
		sizes, grows;
} want = {.streams = 1};

static CUcontext context;
static CUfunction told, own[MOST];
static CUstream stream[MOST];
static CUgraphExec graph[GRAPHS];
static uint64_t state, end_ns, begin_ns;

static unsigned draw(unsigned below)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)((state >> 33) % below);
}

static void read_costs(struct costs *c, const char *text)
{
	for (const char *at = text; at && c->count < MOST; at = strchr(at, ',')) {
		unsigned us, weight = 1;
		at += *at == ',';
		NEED(sscanf(at, "%u*%u", &us, &weight) >= 1);
		c->us[c->count] = us;
		c->weight[c->count++] = weight;
		c->sum += weight;
	}
}

static int choose_cost(const struct costs *c)
{
	unsigned at = draw(c->sum);
	int i = 0;
	while (at >= c->weight[i])
		at -= c->weight[i++];
	return i;
}

static void launch_kernel(CUstream where)
{
	int late = want.later.count && fakegpu_now() >= begin_ns + want.later_ms * 1000000;
	const struct costs *c = late ? &want.later : &want.costs;
	int i = choose_cost(c);
	unsigned us = c->us[i];
	unsigned blocks = want.sizes ? 1 + draw((unsigned)want.sizes) : 264;
	if (want.grows)
		us = 1 + (unsigned)(2ULL * us * blocks / want.sizes);
	CUfunction f = want.own && !late ? own[i] : told;
	NEED(cuLaunchKernel(f, blocks, 1, 1, 256, 1, 1, 0, where, (void *[]){&us}, NULL) ==
	     CUDA_SUCCESS);
}

static CUfunction find_kernel(CUmodule module, const char *name)
{
	CUfunction f;
	NEED(cuModuleGetFunction(&f, module, name) == CUDA_SUCCESS);
	return f;
}

static void record_graph(int i)
{
	CUgraph recorded;
	NEED(cuStreamBeginCapture_v2(stream[0], 0) == CUDA_SUCCESS);
	for (unsigned long n = 0; n < want.graph; n++)
		launch_kernel(stream[0]);
	NEED(cuStreamEndCapture(stream[0], &recorded) == CUDA_SUCCESS &&
	     cuGraphInstantiateWithFlags(&graph[i], recorded, 0) == CUDA_SUCCESS);
}

/* A new context, with all that the program needs in it. */
static void make_context(void)
{
	char name[32];
	CUmodule module;
	NEED(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS &&
	     cuModuleLoadData(&module, "x") == CUDA_SUCCESS);
	told = find_kernel(module, "work_us");
	for (int i = 0; i < want.costs.count; i++) {
		snprintf(name, sizeof name, "work_%uus", want.costs.us[i]);
		own[i] = find_kernel(module, name);
	}
	for (unsigned long i = 0; i < want.streams; i++)
		NEED(cuStreamCreate(&stream[i], 0) == CUDA_SUCCESS);
	for (int i = 0; want.graph && i < GRAPHS; i++)
		record_graph(i);
}

static void destroy_context(void)
{
	NEED(cuCtxDestroy_v2(context) == CUDA_SUCCESS);
}

static void wait_for(CUstream where)
{
	if (!want.poll) {
		NEED(cuStreamSynchronize(where) == CUDA_SUCCESS);
		return;
	}
	while (cuStreamQuery(where) == CUDA_ERROR_NOT_READY)
		fakegpu_sleep_until(fakegpu_now() + 20000);
}

static void launch_one(unsigned long n)
{
	CUstream where = stream[n % want.streams];
	if (want.graph)
		NEED(cuGraphLaunch(graph[draw(GRAPHS)], where) == CUDA_SUCCESS);
	else
		launch_kernel(where);
	if (!want.sync || n % want.sync)
		return;
	for (unsigned long i = 0; i < want.streams; i++)
		wait_for(stream[i]);
	if (want.rest)
		fakegpu_sleep_until(fakegpu_now() + want.rest * 1000);
}

static void end_life(int more)
{
	if (!more)
		exit(0);
	fakegpu_expect_heir();
	if (!want.now)
		exit(75);
	fakegpu_leave();
	_exit(75);
}

static void read_word(const char *word)
{
	static const struct {
		const char *name;
		unsigned long *value;
	} numbers[] = {{"own", &want.own},   {"streams", &want.streams}, {"graph", &want.graph},
		       {"sync", &want.sync}, {"rest", &want.rest},	 {"context", &want.context},
		       {"life", &want.life}, {"from", &want.from},	 {"till", &want.till},
		       {"sizes", &want.sizes}, {"grows", &want.grows}};
	const char *value = strchr(word, '=');
	NEED(value++);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (!strncmp(word, numbers[i].name, (size_t)(value - word - 1)))
			*numbers[i].value = strtoul(value, NULL, 10);
	if (!strncmp(word, "later=", 6)) {
		want.later_ms = strtoul(value, NULL, 10);
		read_costs(&want.later, strchr(value, ':') + 1);
	}
	want.poll |= !strcmp(word, "wait=poll");
	want.now |= !strcmp(word, "end=now");
}

int main(int argc, char **argv)
{
	NEED(argc > 3 && cuInit(0) == CUDA_SUCCESS);
	begin_ns = START_NS;
	read_costs(&want.costs, argv[2]);
	end_ns = START_NS + strtoull(argv[3], NULL, 10) * 1000000000ULL;
	for (int i = 4; i < argc; i++)
		read_word(argv[i]);
	state = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15ULL + fakegpu_now();
	fakegpu_sleep_until(START_NS + want.from * 1000000);
	uint64_t till = want.till ? START_NS + want.till * 1000000 : end_ns, now = fakegpu_now();
	uint64_t death = want.life ? now + want.life * 1000000 : UINT64_MAX, turn = now;
	make_context();
	for (unsigned long n = 1; (now = fakegpu_now()) < till && now < death; n++) {
		if (want.context && now - turn > want.context * 1000000) {
			destroy_context();
			make_context();
			turn = now;
		}
		launch_one(n);
	}
	if (now >= till)
		fakegpu_sleep_until(end_ns);
	end_life(now < till);
}
