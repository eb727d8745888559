#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# style.sh SOURCES INCLUDES TESTS: what a reader of the library may rely on. No line of it and no
# comment of its tests is wider than 100 columns (a tab is 8). No macro returns or declares behind
# the reader's back. Every header of a layer begins by saying what it promises.
set -u
sources=$1 includes=$2 tests=$3 failed=0
echo "== style"

# report WHAT LINES: fails with the lines, if there are any.
report() {
	[ -z "$2" ] && { echo "ok $1"; return; }
	failed=1
	echo "FAILED $1:"
	echo "$2" | head -20
}

files=$(find "$sources" "$includes" -name '*.[chS]' | sort)
wide=$(for f in $files; do expand -t 8 "$f" | awk -v f="$f" 'length($0) > 100 { print f ":" NR ": " length($0) " columns" }'; done)
report "no line is wider than 100 columns" "$wide"

comments=$(for f in "$tests"/* Makefile; do expand -t 8 "$f" | awk -v f="$f" '
	length($0) > 100 && (/^ *(\/?\*|#( |$))/ || /\/\* .*\*\/$/) { print f ":" NR ": " length($0) " columns" }'; done)
report "no comment of a test is wider than 100 columns" "$comments"

long=$(for f in $files; do awk -v f="$f" 'END { if (NR > 500) print f ": " NR " lines" }' "$f"; done)
report "no file is longer than 500 lines" "$long"

# A macro's body is its line and those that it goes on in.
hidden=$(for f in $files; do awk -v f="$f" '
	/^#define/ { body = ""; start = NR; going = 1 }
	going { body = body " " $0; if ($0 !~ /\\$/) { going = 0; if (body ~ /[^_a-z]return[^_a-z]/ || body ~ /[{;] *struct [a-z_]+ [a-z_]+( =|;)/) print f ":" start ": " $2 } }
	' "$f"; done)
report "no macro returns or declares" "$hidden"

silent=$(for f in $(find "$sources" -mindepth 2 -name '*.h'); do
	sed -n '2,4p' "$f" | grep -q "^ \* $(basename "$f"): [A-Za-z]\|^/\* $(basename "$f"): [A-Za-z]" || echo "$f"; done)
report "every header says what it promises" "$silent"
[ "$failed" = 0 ]
