#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fingerprint.sh WORDS PATHS...: another word when a file at or below one of the paths is another,
# or WORDS, or the kernel. Marks of tests that have passed are named after it.
set -eu
words=$1
shift
{
	find "$@" -type f -exec sha256sum {} + | sort
	echo "$words"
	uname -r
} | sha256sum | cut -c1-20
