#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# headers.sh CC GO BUILD: compares our declarations with NVIDIA's headers where this machine has
# them: nvml.h comes with the Go module that the device plugin uses, cuda.h with a CUDA toolkit.
set -u
cc=$1 go=$2 build=$3 here=$(cd "$(dirname "$0")" && pwd) failed=0
mkdir -p "$build"
echo "== headers"

# compare NAME FLAG DIRECTORY: layout.c says the same with both.
compare() {
	if ! "$cc" $2 -I"$here/../include" -o "$build/ours" "$here/layout.c" || ! "$cc" $2 -DTHEIRS -I"$3" -o "$build/theirs" "$here/layout.c"; then
		failed=1; echo "FAILED $1 does not compile"; return
	fi
	"$build/ours" > "$build/ours.txt"; "$build/theirs" > "$build/theirs.txt"
	if diff "$build/ours.txt" "$build/theirs.txt"; then
		echo "ok $(wc -l < "$build/ours.txt") sizes, places and values are those of $1"
	else
		failed=1; echo "FAILED ours (<) and $1 (>) differ"
	fi
}

module=$("$go" list -m -f '{{.Dir}}' github.com/NVIDIA/go-nvml 2>/dev/null)
if [ -n "$module" ] && [ -e "$module/pkg/nvml/nvml.h" ]; then compare nvml.h "" "$module/pkg/nvml"; else echo "nvml.h not compared: it is not here"; fi
cuda=
for dir in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/include; do
	[ -n "$cuda" ] || [ ! -e "$dir/cuda.h" ] || cuda=$dir
done
if [ -n "$cuda" ]; then compare cuda.h -DCUDA_LAYOUT "$cuda"; else echo "cuda.h not compared: no CUDA toolkit here (CUDA_HOME names another place)"; fi
[ "$failed" = 0 ]
