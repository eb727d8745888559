/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mps.h: the parts of the stand-in nvidia-cuda-mps-control, and what it and the fake
 * libcuda.so.1 say to each other over <pipe directory>/control.
 *
 * One line each way. A client says
 *     client partition=<id or none>
 * and is answered, maybe only when another user's clients are gone, by
 *     ok server=<pid> percentage=<n> sms=<n> devices=<minor>:<limit in bytes>,...
 *     error <CUDA result>
 * (limit 0: none; sms 0: no partition). The connection then lives as long as the client:
 * when its server ends it is closed, when the client is terminated it first reads
 * "terminated". Any other line is a command; its answer ends with the connection.
 */
#ifndef FAKEGPU_MPS_H
#define FAKEGPU_MPS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "topology.h"

/* Results of the driver that hami-core's header does not name (cuda.h). */
enum {
	MPS_ERROR_DEVICE_UNAVAILABLE = 46,
	MPS_ERROR_CONNECTION_FAILED = 805,
	MPS_ERROR_RPC_FAILURE = 806,
	MPS_ERROR_SERVER_NOT_READY = 807,
	MPS_ERROR_MAX_CLIENTS_REACHED = 808,
	MPS_ERROR_CLIENT_TERMINATED = 810,
	MPS_ERROR_INVALID_RESOURCE_CONFIGURATION = 915,
};

#define MPS_LINE 1024
#define MPS_PIPE_DEFAULT "/tmp/nvidia-mps"
#define MPS_LOG_DEFAULT "/var/log/nvidia-mps"

/* Room for more than any driver serves, and for those who wait for another user. */
#define MPS_MAX_CLIENTS 256
#define MPS_MAX_SERVERS 2 /* one that serves, one that another user's clients still have */
#define MPS_MAX_PARTITIONS 32

struct mps_limits {
	double percentage;
	uint64_t memory[FG_MAX_DEVICES]; /* bytes by the daemon's ordinal, 0: none */
};

struct mps_server {
	pid_t pid; /* 0: none */
	uid_t uid;
	struct mps_limits limits;
};

struct mps_client {
	int fd; /* -1: free */
	pid_t pid;
	uid_t uid;
	int waiting; /* for another user's clients to leave */
	int partition; /* its number, -1: none */
};

struct mps_partition {
	int used, device, chunks;
	char id[80];
};

struct mps_daemon {
	const char *pipe, *log;
	int multiuser, partitioned;
	int listener;
	FILE *control_log;
	struct fg_topology topology;
	int count; /* devices served */
	const struct fg_gpu *gpu[FG_MAX_DEVICES];
	int allowed; /* clients at once */
	struct mps_limits defaults;
	struct mps_server server;
	struct mps_client client[MPS_MAX_CLIENTS];
	struct mps_partition partition[MPS_MAX_PARTITIONS];
	int serial; /* of partitions */
	int quitting;
	uint64_t quit_at_ns; /* when servers are ended by force; 0: never */
};

/* mps_main.c */
void mps_log(struct mps_daemon *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* mps_daemon.c: runs until quit; the exit code. */
int mps_run(struct mps_daemon *d);
/* The server of a user, started when there is none; NULL when another user's is there or it does not start. */
struct mps_server *mps_serve(struct mps_daemon *d, uid_t uid);
void mps_end_server(struct mps_daemon *d);
int mps_clients(const struct mps_daemon *d);
void mps_drop(struct mps_daemon *d, struct mps_client *c);

/* mps_commands.c: one command; the answer goes to out. */
void mps_command(struct mps_daemon *d, char *line, FILE *out);

/* mps_partition.c: static partitions of a device's multiprocessors. */
int mps_partitions_known(const struct fg_topology *t);
void mps_partition_command(struct mps_daemon *d, char **words, int count, FILE *out);
void mps_partition_list(struct mps_daemon *d, FILE *out);
int mps_partition_find(const struct mps_daemon *d, const char *id);
int mps_chunk(const struct fg_gpu *gpu);

#endif
