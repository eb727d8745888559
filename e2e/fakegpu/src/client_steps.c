/* SPDX-License-Identifier: Apache-2.0 */
/* client_steps.c: what each word of the command line does. */
#define _GNU_SOURCE
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GO_ON = -1 };

const char *client_error(struct client *c, CUresult result)
{
	static char text[32];
	const char *name = NULL;
	if (c->driver.GetErrorName && c->driver.GetErrorName(result, &name) == CUDA_SUCCESS && name)
		return name;
	snprintf(text, sizeof text, "CUDA_ERROR_%d", result);
	return text;
}

CUresult client_start(struct client *c)
{
	CUresult r = CUDA_SUCCESS;
	if (!c->started) {
		r = c->driver.Init(0);
		c->started = r == CUDA_SUCCESS;
	}
	if (r == CUDA_SUCCESS && !c->has_context[c->device]) {
		CUcontext context;
		r = c->driver.DevicePrimaryCtxRetain(&context, c->device);
		if (r == CUDA_SUCCESS)
			r = c->driver.CtxSetCurrent(context);
		c->has_context[c->device] = r == CUDA_SUCCESS;
	}
	return r;
}

/* A number of the step's argument, or exit 2 with what is wanted. */
static double number(const char *step, const char *text, double max)
{
	char *end;
	double v = strtod(text, &end);
	if (end == text || *end || v < 0 || v > max) {
		fprintf(stderr, "cudaclient: %s %s: want a number from 0 to %.0f\n", step, text, max);
		exit(2);
	}
	return v;
}

static int step_alloc(struct client *c, const char *step, const char *argument)
{
	size_t bytes = (size_t)number(step, argument, 1 << 30) << 20, pitch;
	CUdeviceptr at = 0;
	CUresult r = client_start(c);
	int async = !strcmp(step, "alloc-async");
	if (r == CUDA_SUCCESS && async)
		r = c->driver.MemAllocAsync(&at, bytes, NULL);
	else if (r == CUDA_SUCCESS && !strcmp(step, "alloc-managed"))
		r = c->driver.MemAllocManaged(&at, bytes, 1);
	else if (r == CUDA_SUCCESS && !strcmp(step, "alloc-pitch"))
		r = c->driver.MemAllocPitch(&at, &pitch, 1024, bytes / 1024, 4);
	else if (r == CUDA_SUCCESS)
		r = c->driver.MemAlloc(&at, bytes);
	printf("%s mib=%s result=%s\n", step, argument, client_error(c, r));
	if (r == CUDA_SUCCESS && c->blocks < CLIENT_MAX_BLOCKS) {
		c->block[c->blocks].at = at;
		c->block[c->blocks].async = async;
		c->block[c->blocks++].device = c->device;
	}
	c->last = r;
	return GO_ON;
}

static int step_free(struct client *c)
{
	CUresult r = CUDA_SUCCESS;
	int n = c->blocks;
	while (c->blocks && r == CUDA_SUCCESS) {
		int i = --c->blocks;
		r = c->block[i].async ? c->driver.MemFreeAsync(c->block[i].at, NULL) : c->driver.MemFree(c->block[i].at);
	}
	if (r == CUDA_SUCCESS && c->started)
		r = c->driver.CtxSynchronize();
	printf("free blocks=%d result=%s\n", n, client_error(c, r));
	c->last = r;
	return GO_ON;
}

static int step_busy(struct client *c, const char *seconds, const char *ms)
{
	double length = ms ? number("busy", ms, 10000) : 1;
	if (length < 0.001)
		return fprintf(stderr, "cudaclient: busy: a kernel takes 0.001 ms at least\n"), 2;
	c->last = work_busy(c, number("busy", seconds, 1e6), length);
	return GO_ON;
}

static int step_churn(struct client *c, const char *fits, const char *beyond)
{
	if (!beyond)
		return fprintf(stderr, "cudaclient: churn needs two values\n"), 2;
	c->last = work_churn(c, (size_t)number("churn", fits, 1 << 30) << 20, (size_t)number("churn", beyond, 1 << 30) << 20);
	return GO_ON;
}

static int step_device(struct client *c, const char *argument)
{
	c->device = (int)number("device", argument, 63);
	c->has_context[c->device] = 0; /* client_start makes it current again */
	c->last = client_start(c);
	printf("device index=%d result=%s\n", c->device, client_error(c, c->last));
	return GO_ON;
}

static int step_expect(struct client *c, const char *want)
{
	CUresult wanted = !strcmp(want, "oom") ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
	if (strcmp(want, "oom") && strcmp(want, "ok"))
		return fprintf(stderr, "cudaclient: expect %s: want ok or oom\n", want), 2;
	if (c->last == wanted)
		return GO_ON;
	printf("expect want=%s got=%s\n", want, client_error(c, c->last));
	return 3;
}

/* The rest of the words runs in n children; the highest of their exit codes is ours. */
static int step_fork(struct client *c, const char *argument, int count, char **words)
{
	int n = (int)number("fork", argument, 1000), worst = 0;
	fflush(stdout);
	for (int i = 0; i < n; i++) {
		pid_t pid = fork();
		if (pid == 0)
			exit(client_run(c, count, words));
		if (pid < 0)
			return perror("cudaclient: fork"), 1;
	}
	for (int i = 0, status; i < n && wait(&status) > 0; i++) {
		int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		worst = code > worst ? code : worst;
	}
	printf("fork children=%d worst=%d\n", n, worst);
	return worst;
}

static int with_argument(struct client *c, const char *step, const char *argument)
{
	if (!strncmp(step, "alloc", 5))
		return step_alloc(c, step, argument);
	if (!strcmp(step, "launch"))
		return c->last = work_launch(c, (long)number("launch", argument, 1e9)), GO_ON;
	if (!strcmp(step, "device"))
		return step_device(c, argument);
	if (!strcmp(step, "expect"))
		return step_expect(c, argument);
	if (!strcmp(step, "via")) {
		const char *why = driver_reach(&c->driver, argument);
		if (why)
			return fprintf(stderr, "cudaclient: via %s: %s\n", argument, why), 1;
		printf("via way=%s\n", argument);
		return GO_ON;
	}
	if (!strcmp(step, "grow"))
		return files_grow(argument), GO_ON;
	if (!strcmp(step, "lease"))
		return files_lease(argument), GO_ON;
	double seconds = number(step, argument, 1e7); /* hold, sleep */
	printf("%s seconds=%s\n", step, argument);
	fflush(stdout);
	client_rest(seconds);
	return GO_ON;
}

static int without_argument(struct client *c, const char *step)
{
	if (!strcmp(step, "info"))
		return c->last = report_info(c), GO_ON;
	if (!strcmp(step, "processes"))
		return c->last = report_processes(c), GO_ON;
	if (!strcmp(step, "free"))
		return step_free(c);
	if (!strcmp(step, "env"))
		return report_environment(), GO_ON;
	printf("forever pid=%d\n", (int)getpid());
	fflush(stdout);
	for (;;)
		pause();
}

int client_run(struct client *c, int count, char **words)
{
	static const char *const single[] = {"info", "processes", "free", "env", "forever", NULL};
	static const char *const pair[] = {"alloc", "alloc-async", "alloc-managed", "alloc-pitch", "launch", "busy", "device",
					   "expect", "via", "hold", "sleep", "fork", "churn", "grow", "lease", NULL};
	for (int i = 0; i < count; i++) {
		int k = 0, result;
		while (single[k] && strcmp(single[k], words[i]))
			k++;
		if (single[k]) {
			result = without_argument(c, words[i]);
		} else {
			for (k = 0; pair[k] && strcmp(pair[k], words[i]);)
				k++;
			if (!pair[k])
				return fprintf(stderr, "cudaclient: unknown step %s: try --help\n", words[i]), 2;
			if (i + 1 == count)
				return fprintf(stderr, "cudaclient: %s needs a value\n", words[i]), 2;
			if (!strcmp(words[i], "fork"))
				return step_fork(c, words[i + 1], count - i - 2, words + i + 2);
			if (!strcmp(words[i], "churn")) {
				result = step_churn(c, words[i + 1], i + 2 < count ? words[i + 2] : NULL);
				i++;
			} else if (!strcmp(words[i], "busy")) {
				const char *ms = i + 2 < count && strspn(words[i + 2], "0123456789.") == strlen(words[i + 2]) ? words[i + 2] : NULL;
				result = step_busy(c, words[i + 1], ms);
				i += ms != NULL;
			} else {
				result = with_argument(c, words[i], words[i + 1]);
			}
			i++;
		}
		fflush(stdout);
		if (result != GO_ON)
			return result;
	}
	return 0;
}
