/* SPDX-License-Identifier: Apache-2.0 */
/* decode.c: the words of decode_loop.py for machines without PyTorch. A token is some kernels, or
 * one graph. */
#include "load.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define MOST 65536	/* tokens of one turn that are kept */
#define PROMPT 4	/* steps of a prompt */
#define SEQUENCE 128	/* tokens after a prompt */

static double device[MOST], wall[MOST], prompts[MOST];

/* A line waits on standard input, or its end. Nothing of it is in stdio's buffer: main turned that
 * off. */
static int is_stopped(void)
{
	struct pollfd in = {.fd = 0, .events = POLLIN};
	return poll(&in, 1, 0) > 0;
}

static CUresult timed(int is_graph, double *device_ms, double *wall_ms)
{
	double began = load_seconds();
	CUresult r = load_token(is_graph, device_ms);
	*wall_ms = (load_seconds() - began) * 1000;
	return r;
}

static void print_quantiles(const char *name, double *values, int count)
{
	load_sort(values, count);
	printf(", \"%s\": {\"median\": %.4f, \"p99\": %.4f}", name, load_quantile(values, count, 0.5), load_quantile(values, count, 0.99));
}

/* Prompts and tokens until it is stopped, or so many were counted, which they are after `settle`
 * seconds. One is at least. */
static void measure(int is_graph, int batch, double settle, int most)
{
	CUresult r = CUDA_SUCCESS;
	int tokens = 0, n = 0;
	double began = load_seconds(), spent = 0, ignored;
	while (r == CUDA_SUCCESS && tokens < most && n < MOST && !(tokens && is_stopped())) {
		double start = load_seconds();
		for (int i = 0; i < PROMPT && r == CUDA_SUCCESS; i++)
			r = load_token(is_graph, &ignored);
		prompts[n++] = (load_seconds() - start) * 1000;
		for (int i = 0; i < SEQUENCE && r == CUDA_SUCCESS && tokens < most && !(tokens && is_stopped()); i++) {
			r = timed(is_graph, &device[tokens], &wall[tokens]);
			if (load_seconds() - began >= settle)
				spent += wall[tokens++] / 1000;
		}
	}
	if (load_failed("decode", r))
		return;
	printf("= {\"mode\": \"%s\", \"batch\": %d, \"seconds\": %.4f, \"prompts\": %d, \"tokens\": %d, \"rate\": %.3f",
	       is_graph ? "graph" : "eager", batch, load_seconds() - began, n, tokens * batch, tokens * batch / spent);
	print_quantiles("first_ms", prompts, n);
	print_quantiles("token_ms", device, tokens);
	print_quantiles("wall_ms", wall, tokens);
	printf("}\n");
}

static void run(struct load *l, int count, char **words, int most)
{
	int is_graph = count > 1 && !strcmp(words[1], "graph");
	if (!is_graph && (count < 2 || strcmp(words[1], "eager")))
		printf("= error what=unknown-mode\n");
	else if (!load_ready(l, is_graph))
		measure(is_graph, (int)load_number(count, words, 2, 1), load_number(count, words, 3, 0) / 1000, most);
}

/* prepare MODE BATCH: what start will do, for one token */
void load_decode_prepare(struct load *l, int count, char **words)
{
	run(l, count, words, 1);
}

/* start MODE BATCH SETTLE: decodes until a line comes, which must be stop; counts nothing in the
 * first SETTLE ms */
void load_decode_start(struct load *l, int count, char **words)
{
	run(l, count, words, MOST);
}

/* stop: start has answered */
void load_decode_stop(struct load *l, int count, char **words)
{
	(void)l, (void)count, (void)words;
}
