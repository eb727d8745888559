#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# symbols.sh [-c CROSS] LIBRARY HOOKS FAKE GO: checks what the built library exports and needs.
# With CROSS, a prefix of tools, the library is another machine's, and no driver is looked at.
set -u
cross=
[ "$1" != -c ] || { cross=$2; shift 2; }
library=$1 hooks=$2 fake=$3 go=$4
passed=0 failed=0
[ -n "$cross" ] || echo "== symbols"
result() {
	if [ "$2" = 0 ]; then passed=$((passed + 1)); echo "ok $1"; else failed=$((failed + 1)); echo "FAILED $1"; fi
}
exported() { "${cross}nm" -D --defined-only "$1" | sed 's/.* //;s/@.*//' | sort; }

exported "$library" > "$library.exports"
sort "$hooks" | diff - "$library.exports"
result "the library exports exactly the hooked names" $?

needed=$("${cross}readelf" -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
[ "$needed" = libc.so.6 ]
result "the library needs nothing but the C library (it needs: $needed)" $?

! grep -q HAMICORE_TEST "$library"
result "no variable of the test build is in the product" $?

newest=$("${cross}objdump" -T "$library" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
[ "$(printf '%s\nGLIBC_2.17\n' "$newest" | sort -V | tail -1)" = GLIBC_2.17 ]
result "it loads with any C library since 2.17 (newest symbol: $newest)" $?

[ -z "$("${cross}readelf" -lW "$library" | grep GNU_STACK | grep E)" ]
result "the stack is not executable" $?

if [ -n "$cross" ]; then
	echo "$passed passed, $failed failed"
	[ "$failed" = 0 ]
	exit
fi

check() {
	exported "$1" > "$library.driver"
	"$go" run ./tools/generate -check "$library.driver"
	result "no family of $2 is hooked in part" $?
}
check "$fake/libcuda.so.1" "the fake driver"
check "$fake/libnvidia-ml.so.1" "the fake NVML"
for real in /usr/lib/x86_64-linux-gnu/libcuda.so.1 /usr/lib64/libcuda.so.1 /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1; do
	[ -e "$real" ] && check "$real" "$real"
done

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
