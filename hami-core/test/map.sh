#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# map.sh: every test that the tables of README.md and ../../docs/libvgpu-failures.md name exists,
# and each of the 46 weaknesses has a row. A cell names tests as `file: *beginning of the name…*`;
# more of them are parted by semicolons. A name that begins with Test is Go's, and what stands
# before it is its package. A file of weaknesses alone means the test of the row's number.
set -u
here=$(cd "$(dirname "$0")" && pwd)
passed=0 failed=0
echo "== map of weaknesses and failures"
refuse() { failed=$((failed + 1)); echo "FAILED $1"; }

# packages NAME: the folders of that name, or one that does not exist.
packages() {
	(cd "$here/../.." && find "$PWD" -mindepth 1 -name '.*' -prune -o -type d -name "$1" -print) | grep . || echo "$here/no-package-$1"
}

# named FILE NAME: a test of that file has the name, or begins with it.
named() {
	case $1:$2 in
	*:Test[A-Z]*) grep -rqF --include='*_test.go' "func $2(" $(packages "$1") ;;
	cases:*) grep -qF ".text = \"$2" "$here/cases_test.c" ;;
	*) grep -qF "TEST(\"$2" "$here/$1_test.c" ;;
	esac
}

for table in "$here/README.md" "$here/../../docs/libvgpu-failures.md"; do
	while read -r line; do
		file=${line%%: *} name=${line#*: \*}
		name=${name%\*} name=${name%…}
		if named "$file" "$name"; then passed=$((passed + 1)); else refuse "$(basename "$table") names a test of $file that is not there: $name"; fi
	done <<TESTS
$(sed 's/^| \([0-9, ]*\) |\(.*\)| \(weak_[a-z]*\) |$/| \1 |\2| \3: *weakness \1* |/' "$table" | grep '^|' | grep -o '[a-z_]*: \*[^*]*\*')
TESTS
done
number=1
while [ $number -le 46 ]; do
	grep -q "^| \([0-9, ]*, \)\{0,1\}$number[, ]" "$here/README.md" || refuse "README.md has no row for weakness $number"
	number=$((number + 1))
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
