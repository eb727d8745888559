// SPDX-License-Identifier: Apache-2.0
/* The first process of every pod of the sandbox, and of the sandbox itself: it holds the namespaces, collects orphans and
 * ends on request. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signum)
{
	(void)signum;
	_exit(0);
}

static void collect(int signum)
{
	(void)signum;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

int main(void)
{
	signal(SIGINT, end);
	signal(SIGTERM, end);
	signal(SIGCHLD, collect);
	for (;;)
		pause();
}
