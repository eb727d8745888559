/* SPDX-License-Identifier: Apache-2.0 */
/*
 * testing.h: a test harness in one header. Each TEST runs in a child process of its
 * own, so that a crash is one failure and state never leaks into the next test.
 *
 *	TEST("a limit of 0 admits everything")
 *	{
 *		CHECK(limit_admits(5, 6, 0));
 *	}
 *	TEST_MAIN
 */
#ifndef TESTING_H
#define TESTING_H

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef TEST_SECONDS
#define TEST_SECONDS 300 /* a hang; how fast a machine is decides nothing */
#endif

struct test {
	const char *name;
	void (*run)(void);
};
static struct test test_list[256];
static int test_count, test_failed_checks;

#define TEST_JOIN2(a, b) a##b
#define TEST_JOIN(a, b) TEST_JOIN2(a, b)
#define TEST_DEFINE(id, text)                                             \
	static void id(void);                                             \
	__attribute__((constructor)) static void TEST_JOIN(id, _add)(void) \
	{                                                                 \
		test_list[test_count++] = (struct test){text, id};        \
	}                                                                 \
	static void id(void)
#define TEST(text) TEST_DEFINE(TEST_JOIN(test_, __LINE__), text)

#define CHECK(condition)                                                             \
	do {                                                                         \
		if (!(condition)) {                                                  \
			test_failed_checks++;                                        \
			printf("    %s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
		}                                                                    \
	} while (0)

#define CHECK_EQ(got, want)                                                          \
	do {                                                                         \
		unsigned long long test_got = (unsigned long long)(got), test_want = (unsigned long long)(want); \
		if (test_got != test_want) {                                         \
			test_failed_checks++;                                        \
			printf("    %s:%d: %s is %llu, want %llu\n", __FILE__, __LINE__, #got, test_got, test_want); \
		}                                                                    \
	} while (0)

/* Fewer rounds, and one kind where others are alike: `make test`. Everything: `make test-all`. */
__attribute__((unused)) static int test_is_short(void)
{
	return getenv("VGPU_SHORT") != NULL;
}

/* Removes a folder and all in it; 0 when it is gone. Starting a program for that takes longer. */
__attribute__((unused)) static int remove_folder(const char *folder)
{
	char path[512];
	DIR *d = opendir(folder);
	for (struct dirent *e; d && (e = readdir(d));) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
		if (unlink(path))
			remove_folder(path);
	}
	if (d)
		closedir(d);
	return rmdir(folder);
}

/* 0 when the test passed. */
static int test_run_one(const struct test *t)
{
	int status = 0;
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(TEST_SECONDS);
		t->run();
		fflush(stdout);
		_exit(test_failed_checks ? 1 : 0);
	}
	waitpid(pid, &status, 0);
	if (status == 0)
		return printf("ok %s\n", t->name), 0;
	if (WIFSIGNALED(status))
		printf("FAILED %s (signal %d)\n", t->name, WTERMSIG(status));
	else
		printf("FAILED %s\n", t->name);
	return 1;
}

/* Arguments are parts of names: only tests with one of them run. */
__attribute__((unused)) static int test_main(int argc, char **argv)
{
	int passed = 0, failed = 0;
	for (int i = 0; i < test_count; i++) {
		int wanted = argc < 2;
		for (int k = 1; k < argc; k++)
			wanted |= strstr(test_list[i].name, argv[k]) != NULL;
		if (wanted && test_run_one(&test_list[i]))
			failed++;
		else if (wanted)
			passed++;
	}
	printf("%d passed, %d failed\n", passed, failed);
	return failed ? 1 : 0;
}

#define TEST_MAIN                             \
	int main(int argc, char **argv)       \
	{                                     \
		setvbuf(stdout, NULL, _IOLBF, 0); \
		return test_main(argc, argv); \
	}

#endif
