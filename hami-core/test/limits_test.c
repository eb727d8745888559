/* SPDX-License-Identifier: Apache-2.0 */
#include "model/limits.h"
#include "testing.h"

#define U0 "GPU-00000000-0000-0000-0000-000000000000"
#define U1 "GPU-abcdefab-1111-2222-3333-444444444444"
#define HEAD "vgpu-limits 1\n"
#define GOOD HEAD "region /tmp/vgpu/vgpu.cache\npolicy force\npriority 0\n" \
	"device 0 " U0 " memory=1073741824 cores=30\ndevice 3 " U1 " memory=0 cores=0\n"

static int parse(const char *text, struct limits *out, char *reason)
{
	return limits_parse(text, strlen(text), out, reason, 256);
}

TEST("a good limits file is read whole")
{
	struct limits l;
	char why[256] = "";
	CHECK_EQ(parse(GOOD, &l, why), 0);
	CHECK_EQ(l.source, LIMITS_FILE);
	CHECK(!strcmp(l.region, "/tmp/vgpu/vgpu.cache"));
	CHECK_EQ(l.policy, POLICY_FORCE);
	CHECK_EQ(l.priority, 0);
	CHECK_EQ(l.device[0].memory, 1073741824);
	CHECK_EQ(l.device[0].cores, 30);
	CHECK_EQ(l.device[3].memory, 0);
	CHECK_EQ(l.device[3].cores, 100); /* 0 is unlimited */
	CHECK(l.device[3].given && !l.device[1].given);
	CHECK_EQ(limits_find(&l, "GPU-ABCDEFAB-1111-2222-3333-444444444444"), 3);
	CHECK_EQ(limits_find(&l, "GPU-abcdefab"), (unsigned long long)-1);
	CHECK_EQ(l.ignored_line, 0);
}

TEST("contexts are charged unless the file says otherwise")
{
	struct limits l;
	char why[256];
	CHECK_EQ(parse(HEAD "device 0 " U0 " memory=1 cores=2\n", &l, why), 0);
	CHECK_EQ(l.context_free, 0);
	CHECK_EQ(parse(HEAD "context free\n", &l, why), 0);
	CHECK_EQ(l.context_free, 1);
	CHECK_EQ(parse(HEAD "context free\ncontext charge\n", &l, why), 0);
	CHECK_EQ(l.context_free + l.ignored_line, 0);
}

TEST("a container has files among its neighbours where the file says so")
{
	struct limits l;
	char why[256];
	CHECK_EQ(parse(HEAD "borrow /usr/local/vgpu/neighbours/a1\n", &l, why), 0);
	CHECK(!strcmp(l.borrow, "/usr/local/vgpu/neighbours/a1"));
	CHECK_EQ(l.ignored_line, 0);
	CHECK_EQ(parse(HEAD, &l, why), 0);
	CHECK(!*l.borrow);
}

static const char *only_oversubscribe(const char *name)
{
	return !strcmp(name, "CUDA_OVERSUBSCRIBE") ? getenv("TEST_VALUE") : !strcmp(name, "CUDA_DEVICE_MEMORY_LIMIT") ? "1g" : NULL;
}

TEST("memory comes from the host only where that is said in so many words")
{
	static const char *const no[] = {"", "yes", "1", "false", "truely"};
	struct limits l;
	char why[256];
	CHECK_EQ(parse(HEAD "device 0 " U0 " memory=1 cores=2\n", &l, why), 0);
	CHECK_EQ(l.oversubscribe, 0);
	CHECK_EQ(parse(HEAD "oversubscribe on\n", &l, why), 0);
	CHECK_EQ(l.oversubscribe, 1);
	CHECK_EQ(parse(HEAD "oversubscribe on\noversubscribe off\n", &l, why), 0);
	CHECK_EQ(l.oversubscribe + l.ignored_line, 0);
	setenv("TEST_VALUE", "true", 1);
	limits_from_environment(only_oversubscribe, NULL, &l);
	CHECK_EQ(l.oversubscribe, 1);
	for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
		setenv("TEST_VALUE", no[i], 1);
		limits_from_environment(only_oversubscribe, NULL, &l);
		CHECK_EQ(l.oversubscribe, 0);
	}
}

TEST("words of a later version are skipped and told")
{
	static const char *const table[] = {
		HEAD "frobnicate 3\ndevice 0 " U0 " memory=1 cores=2\n",
		HEAD "device 0 " U0 " memory=1 cores=2 weight=7\n",
		HEAD "policy default really\n",
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct limits l;
		char why[256] = "";
		CHECK_EQ(parse(table[i], &l, why), 0);
		CHECK_EQ(l.ignored_line, 2);
	}
}

TEST("a bad limits file is invalid as a whole and says which line")
{
	static const struct {
		const char *text, *why;
	} table[] = {
		{"", "empty"},
		{"\n", "line 1: want"},
		{"vgpu-limits 2\n", "line 1: want"},
		{"vgpu-limits 1 \n", "line 1: want"},
		{HEAD "borrow\n", "line 2: bad borrow: want an absolute path"},
		{HEAD "borrow neighbours/a1\n", "line 2: bad borrow: want an absolute path"},
		{HEAD "context\n", "line 2: bad context"},
		{HEAD "deepbind\n", "line 2: bad deepbind"},
		{HEAD "context maybe\n", "line 2: bad context"},
		{HEAD "oversubscribe\n", "line 2: bad oversubscribe"},
		{HEAD "oversubscribe true\n", "line 2: bad oversubscribe"},
		{" vgpu-limits 1\n", "line 1: want"},
		{"vgpu-limits 1\r\n", "line 1: want"},
		{HEAD "device\n", "line 2: bad device number"},
		{HEAD "device 16 " U0 " memory=1 cores=1\n", "line 2: bad device number"},
		{HEAD "device -1 " U0 " memory=1 cores=1\n", "line 2: bad device number"},
		{HEAD "device x " U0 " memory=1 cores=1\n", "line 2: bad device number"},
		{HEAD "device 0\n", "line 2: bad device UUID"},
		{HEAD "device 0 0 memory=1 cores=1\n", "line 2: bad device UUID"},
		{HEAD "device 0 GPU-1 memory=1 cores=1\n", "line 2: bad device UUID"},
		{HEAD "device 0 " U0 "\n", "line 2: a device needs"},
		{HEAD "device 0 " U0 " memory=1\n", "line 2: a device needs"},
		{HEAD "device 0 " U0 " cores=1\n", "line 2: a device needs"},
		{HEAD "device 0 " U0 " memory= cores=1\n", "line 2: bad memory="},
		{HEAD "device 0 " U0 " memory=1g cores=1\n", "line 2: bad memory=1g"},
		{HEAD "device 0 " U0 " memory=-1 cores=1\n", "line 2: bad memory=-1"},
		{HEAD "device 0 " U0 " memory=99999999999999999999 cores=1\n", "line 2: bad memory="},
		{HEAD "device 0 " U0 " memory=1 memory=2 cores=1\n", "line 2: bad memory=2"},
		{HEAD "device 0 " U0 " memory=1 cores=101\n", "line 2: bad cores=101"},
		{HEAD "device 0 " U0 " memory=1 cores=1\ndevice 0 " U1 " memory=1 cores=1\n", "line 3: device 0 is given twice"},
		{HEAD "device 0 " U0 " memory=1 cores=1\ndevice 1 " U0 " memory=1 cores=1\n", "line 3: device GPU-0"},
		{HEAD "region tmp/x\n", "line 2: bad region"},
		{HEAD "region\n", "line 2: bad region"},
		{HEAD "policy maybe\n", "line 2: bad policy"},
		{HEAD "policy\n", "line 2: bad policy"},
		{HEAD "priority high\n", "line 2: bad priority"},
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct limits l;
		char why[256] = "";
		if (parse(table[i].text, &l, why) == 0 || !strstr(why, table[i].why)) {
			printf("    case %zu: got \"%s\", want \"%s\"\n", i, why, table[i].why);
			CHECK(0);
		}
		CHECK_EQ(l.source, LIMITS_INVALID);
	}
}

TEST("a line that is too long or holds a zero byte is refused")
{
	struct limits l;
	char why[256] = "", text[2048] = HEAD "# ";
	memset(text + sizeof HEAD + 1, 'x', 1000);
	CHECK(limits_parse(text, strlen(text), &l, why, sizeof why));
	CHECK(limits_parse("vgpu-limits 1\npolicy de\0fault\n", 31, &l, why, sizeof why));
}

static uint64_t random_state = 42;
static uint32_t next_random(void)
{
	/* Knuth's MMIX */
	random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(random_state >> 32);
}

/* Whatever comes out must be either refused or within the bounds that the rest relies on. */
static void check_total(const char *text, size_t n)
{
	struct limits l;
	char why[16];
	if (limits_parse(text, n, &l, why, sizeof why)) {
		CHECK_EQ(l.source, LIMITS_INVALID);
		return;
	}
	CHECK_EQ(l.source, LIMITS_FILE);
	for (int i = 0; i < HAMI_DEVICES; i++)
		CHECK(!l.device[i].given || (strlen(l.device[i].uuid) == 40 && l.device[i].cores >= 1 && l.device[i].cores <= 100));
}

TEST("random bytes and random edits of a good file never harm the reader")
{
	static const char piece[] = "device GPU-= memory=1 cores=1 region / policy priority\n\0\t#9";
	for (int round = 0; round < 100000 && !test_failed_checks; round++) {
		size_t n = sizeof GOOD - 1, edits = next_random() % 8;
		/* exactly as long as said, so that a read behind it is seen */
		char *text = malloc(n);
		memcpy(text, GOOD, n);
		for (size_t i = 0; i < edits; i++)
			text[next_random() % n] = next_random() % 2 ? (char)next_random() : piece[next_random() % sizeof piece];
		check_total(text, next_random() % 4 ? n : next_random() % n);
		free(text);
	}
	for (int round = 0; round < 20000 && !test_failed_checks; round++) {
		size_t n = next_random() % 200;
		char *text = malloc(n ? n : 1);
		for (size_t i = 0; i < n; i++)
			text[i] = (char)next_random();
		if (n > sizeof HEAD && round % 2)
			memcpy(text, HEAD, sizeof HEAD - 1);
		check_total(text, n);
		free(text);
	}
}

TEST("sizes are read as people write them, and nonsense is refused")
{
	static const struct {
		const char *text;
		uint64_t bytes; /* UINT64_MAX: refused */
	} table[] = {
		{"512", 512}, {"512m", 512ULL << 20}, {"512M", 512ULL << 20}, {"512MiB", 512ULL << 20},
		{"3000Mi", 3000ULL << 20}, {"1gb", 1ULL << 30}, {"1 GB", 1ULL << 30}, {"1.5g", 3ULL << 29},
		{"0.5k", 512}, {"2t", 2ULL << 40}, {"010m", 10ULL << 20}, {"0", 0}, {"100b", 100},
		{" 7k ", 7 << 10}, {"", UINT64_MAX}, {"m", UINT64_MAX}, {"-5", UINT64_MAX}, {"abc", UINT64_MAX},
		{"1x", UINT64_MAX}, {"1gg", UINT64_MAX}, {"0x10", UINT64_MAX}, {"1.5", UINT64_MAX},
		{"99999999999999999999", UINT64_MAX}, {"9999999t", UINT64_MAX}, {"1e9", UINT64_MAX},
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		uint64_t bytes = UINT64_MAX;
		if (limits_parse_size(table[i].text, &bytes))
			bytes = UINT64_MAX;
		if (bytes != table[i].bytes)
			printf("    \"%s\"\n", table[i].text);
		CHECK_EQ(bytes, table[i].bytes);
	}
}

static const char *const *variables;
static int complaints;

static const char *get(const char *name)
{
	for (const char *const *v = variables; *v; v += 2)
		if (!strcmp(v[0], name))
			return v[1];
	return NULL;
}

static void complain(const char *name, const char *value)
{
	(void)name, (void)value;
	complaints++;
}

TEST("the environment gives limits by number with a fallback for all")
{
	variables = (const char *const[]){"CUDA_DEVICE_MEMORY_LIMIT", "1g", "CUDA_DEVICE_MEMORY_LIMIT_1", "512m",
					  "CUDA_DEVICE_MEMORY_LIMIT_2", "0", "CUDA_DEVICE_SM_LIMIT", "30",
					  "CUDA_DEVICE_SM_LIMIT_2", "250", "CUDA_DEVICE_MEMORY_SHARED_CACHE", "/a/b",
					  "CUDA_TASK_PRIORITY", "0", "GPU_CORE_UTILIZATION_POLICY", "FORCE", NULL};
	struct limits l;
	limits_from_environment(get, complain, &l);
	CHECK_EQ(l.source, LIMITS_ENVIRONMENT);
	CHECK_EQ(l.device[0].memory, 1ULL << 30);
	CHECK_EQ(l.device[1].memory, 512ULL << 20);
	CHECK_EQ(l.device[2].memory, 1ULL << 30); /* 0 is as good as unset */
	CHECK_EQ(l.device[0].cores, 30);
	CHECK_EQ(l.device[2].cores, 100);
	CHECK(!strcmp(l.region, "/a/b"));
	CHECK_EQ(l.priority, 0);
	CHECK_EQ(l.policy, POLICY_FORCE);
	CHECK_EQ(complaints, 0);
}

TEST("nonsense in a variable counts as unset and is told")
{
	variables = (const char *const[]){"CUDA_DEVICE_MEMORY_LIMIT", "1g", "CUDA_DEVICE_MEMORY_LIMIT_1", "many",
					  "CUDA_DEVICE_SM_LIMIT_0", "-3", "CUDA_DEVICE_MEMORY_SHARED_CACHE", "x", NULL};
	struct limits l;
	limits_from_environment(get, complain, &l);
	CHECK_EQ(l.device[1].memory, 1ULL << 30);
	CHECK_EQ(l.device[0].cores, 100);
	CHECK(!strcmp(l.region, HAMI_REGION_DEFAULT));
	CHECK_EQ(complaints, 3);
}

TEST("an environment without limits limits nothing")
{
	variables = (const char *const[]){"CUDA_DEVICE_SM_LIMIT", "100", "CUDA_DEVICE_MEMORY_LIMIT_0", "0", NULL};
	struct limits l;
	limits_from_environment(get, complain, &l);
	CHECK_EQ(l.source, LIMITS_NONE);
}

TEST("a container has a limit when memory or an enforced share of a device is limited")
{
	static const struct {
		const char *lines;
		int any;
	} table[] = {
		{"", 0},
		{"device 0 " U0 " memory=0 cores=0\n", 0},
		{"device 0 " U0 " memory=0 cores=100\n", 0},
		{"device 15 " U0 " memory=1 cores=0\n", 1},
		{"device 15 " U0 " memory=0 cores=99\n", 1},
		{"policy disable\ndevice 0 " U0 " memory=0 cores=30\n", 0},
		{"policy disable\ndevice 0 " U0 " memory=1 cores=30\n", 1},
		{"policy force\ndevice 0 " U0 " memory=0 cores=30\n", 1},
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct limits l;
		char text[256], why[256];
		int n = snprintf(text, sizeof text, "vgpu-limits 1\n%s", table[i].lines);
		CHECK_EQ(limits_parse(text, (size_t)n, &l, why, sizeof why), 0);
		CHECK_EQ(limits_has_any(&l), table[i].any);
	}
}

TEST_MAIN
