/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mps_partition.c: static partitions of multiprocessors, from CUDA 13.1 on and Ampere on.
 * They are made of chunks: 8 multiprocessors from Hopper on, 4 before.
 */
#include "mps.h"

#include <stdlib.h>
#include <string.h>

int mps_partitions_known(const struct fg_topology *t)
{
	return t->cuda_major * 100 + t->cuda_minor >= 1301;
}

int mps_chunk(const struct fg_gpu *gpu)
{
	return gpu->cc_major >= 9 ? 8 : 4;
}

static int device_of(const struct mps_daemon *d, const char *uuid)
{
	for (int i = 0; uuid && i < d->count; i++)
		if (!strcmp(d->gpu[i]->uuid, uuid))
			return i;
	return -1;
}

static int used_chunks(const struct mps_daemon *d, int device)
{
	int n = 0;
	for (int i = 0; i < MPS_MAX_PARTITIONS; i++)
		if (d->partition[i].used && d->partition[i].device == device)
			n += d->partition[i].chunks;
	return n;
}

int mps_partition_find(const struct mps_daemon *d, const char *id)
{
	for (int i = 0; i < MPS_MAX_PARTITIONS; i++)
		if (d->partition[i].used && !strcmp(d->partition[i].id, id))
			return i;
	return -1;
}

static void add(struct mps_daemon *d, int device, const char *chunks, FILE *out)
{
	int n = atoi(chunks), free_chunks = d->gpu[device]->sms / mps_chunk(d->gpu[device]) - used_chunks(d, device);
	for (int i = 0; i < MPS_MAX_PARTITIONS && n > 0 && n <= free_chunks && d->gpu[device]->cc_major >= 8; i++) {
		struct mps_partition *p = &d->partition[i];
		if (p->used)
			continue;
		*p = (struct mps_partition){.used = 1, .device = device, .chunks = n};
		snprintf(p->id, sizeof p->id, "%.44s/%c%c%d", d->gpu[device]->uuid, 'A' + d->serial % 26, 'a' + d->serial / 26 % 26, i);
		d->serial++;
		fprintf(out, "Partition %s created\n", p->id);
		return;
	}
	fprintf(out, "Failed to create partition: %d of %d chunks are free\n", free_chunks, d->gpu[device]->sms / mps_chunk(d->gpu[device]));
}

void mps_partition_command(struct mps_daemon *d, char **w, int n, FILE *out)
{
	char id[96];
	if (!d->partitioned) {
		fprintf(out, "Failed: static partitioning mode is not enabled\n");
		return;
	}
	int device = n == 4 ? device_of(d, w[2]) : -1;
	if (device < 0) {
		fprintf(out, "Failed: usage: sm_partition add|rm <GPU UUID> <chunks or partition>\n");
		return;
	}
	if (!strcmp(w[1], "add")) {
		add(d, device, w[3], out);
		return;
	}
	snprintf(id, sizeof id, "%s%s%s", strchr(w[3], '/') ? "" : w[2], strchr(w[3], '/') ? "" : "/", w[3]);
	int i = mps_partition_find(d, id);
	for (int k = 0; i >= 0 && k < MPS_MAX_CLIENTS; k++)
		if (d->client[k].fd >= 0 && d->client[k].partition == i) {
			fprintf(out, "Failed to remove partition: it has clients\n");
			return;
		}
	if (i < 0) {
		fprintf(out, "Failed to remove partition: %s not found\n", id);
		return;
	}
	d->partition[i] = (struct mps_partition){0};
	fprintf(out, "Partition %s removed\n", id);
}

void mps_partition_list(struct mps_daemon *d, FILE *out)
{
	if (!d->partitioned) {
		fprintf(out, "Failed: static partitioning mode is not enabled\n");
		return;
	}
	fprintf(out, "GPU           Partition     free chunks  used chunks  free SM  used SM  clients\n");
	for (int i = 0; i < d->count; i++) {
		int chunk = mps_chunk(d->gpu[i]), used = used_chunks(d, i), all = d->gpu[i]->sms / chunk;
		fprintf(out, "%s - %d %d %d %d\n", d->gpu[i]->uuid, all - used, used, (all - used) * chunk, used * chunk);
		for (int k = 0; k < MPS_MAX_PARTITIONS; k++) {
			const struct mps_partition *p = &d->partition[k];
			if (p->used && p->device == i)
				fprintf(out, "%s %s - %d - %d\n", d->gpu[i]->uuid, p->id, p->chunks, p->chunks * chunk);
		}
	}
}
