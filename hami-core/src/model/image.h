/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.h: what an image of device code says of memory: how large it is, and the bytes of the
 * arrays that the code declares (`__device__`), which the device has as long as the code is loaded.
 *
 * Images are ELF files (cubin), containers of several of them (fatbin), the wrapper that compilers
 * put around one, and texts (PTX). Of compressed ones and of texts the arrays are not known.
 */
#ifndef IMAGE_H
#define IMAGE_H

#include <stddef.h>
#include <stdint.h>

struct image {
	uint64_t bytes;  /* code can hardly take more; 0: not known */
	uint64_t arrays; /* bytes; 0: none, or not known */
};

/*
 * Reads an image at an address that need not be one. peek: copies from an address that need not be
 * valid; the bytes that it could copy.
 */
struct image image_read(uint64_t at, size_t (*peek)(void *to, uint64_t from, size_t size));

#endif
