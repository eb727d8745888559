#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# layers.sh CC OBJECTS LAYERS UNITS...: every unit uses symbols of its own layer and of lower ones
# only, and no units of a layer use each other in a circle. OBJECTS is the folder of a build with
# one object per unit, <layer>/<file>.o. LAYERS are the names, lowest first; siblings that may not
# use each other are joined by a comma. Units without a layer (the generated wrappers, start) are
# above all. At the end it checks itself: a unit that breaks the rule has to be found.
set -u
cc=$1 objects=$2 layers=$3
shift 3
echo "== layers"

# The read-only tables that a lower layer declares and the top fills: start.c's components, the
# generated symbols.
tables='components component_count symbols lookup_functions'

# violations UNITS...: one line for each use of a higher layer, of a sibling, or in a circle.
violations() {
	(cd "$objects" && for unit; do nm -A "$unit.o"; done) | awk -v layers="$layers" -v tables="$tables" '
		BEGIN {
			n = split(layers, level, " ")
			for (i = 1; i <= n; i++) {
				siblings = split(level[i], name, ",")
				for (j = 1; j <= siblings; j++) rank[name[j]] = i
			}
			top = n + 1
			m = split(tables, name, " ")
			for (i = 1; i <= m; i++) filled[name[i]] = 1
		}
		{
			split($1, part, ":")
			unit = part[1]; sub(/\.o$/, "", unit)
			type = $(NF - 1); symbol = $NF
			if (type == "U") uses[++count] = unit " " symbol
			else if (type ~ /^[A-Z]$/) owner[symbol] = unit
		}
		function layer_of(unit) { return unit ~ /\// ? substr(unit, 1, index(unit, "/") - 1) : "top" }
		function rank_of(layer) { return layer == "top" ? top : layer in rank ? rank[layer] : 0 }
		END {
			for (i = 1; i <= count; i++) {
				split(uses[i], use, " ")
				if (!(use[2] in owner) || use[2] in filled) continue
				from = layer_of(use[1]); to = layer_of(owner[use[2]])
				if (from == to) { if (owner[use[2]] != use[1]) edge[use[1] " " owner[use[2]]] = 1; continue }
				if (rank_of(to) >= rank_of(from))
					print use[1] " uses " use[2] " of " owner[use[2]] ": layer " to " is not below " from
			}
			# Takes away whoever uses nobody that is left or is used by nobody, until
			# only circles are left.
			for (removed = 1; removed;) {
				removed = 0
				for (e in edge) { split(e, end, " "); user[end[1]] = 1; used[end[2]] = 1 }
				for (e in edge) {
					split(e, end, " ")
					if (!(end[2] in user) || !(end[1] in used)) { delete edge[e]; removed = 1 }
				}
				split("", user); split("", used)
			}
			for (e in edge) { split(e, end, " "); print end[1] " uses " end[2] ", which leads back to it: a circle in a layer" }
		}'
}

found=$(violations "$@")
if [ -n "$found" ]; then
	echo "$found"
	echo "FAILED a file uses a higher layer, or what uses it: move the function down, or have the higher one call it"
	exit 1
fi
echo "ok $# files use their own layer and lower ones only"

# The counter-examples: a file of the lowest layer that asks the accounting, and two that use each
# other.
lowest=${layers%%[, ]*}
trap 'rm -f "$objects/$lowest/bad.o" "$objects/$lowest/one.o" "$objects/$lowest/two.o"' EXIT

# example UNIT DEFINES USES: compiles a file of the lowest layer.
example() {
	echo "int $3(void); int $2(void); int $2(void) { return $3(); }" | "$cc" -x c -c -o "$objects/$lowest/$1.o" -
}
example bad bad charge_begin
example one one two
example two two one
want="$lowest/bad uses charge_begin of memory/account: layer memory is not below $lowest
$lowest/one uses $lowest/two, which leads back to it: a circle in a layer
$lowest/two uses $lowest/one, which leads back to it: a circle in a layer"
got=$(violations "$@" "$lowest/bad" "$lowest/one" "$lowest/two" | sort)
if [ "$got" = "$want" ]; then
	echo "$want" | sed 's/^/ok and this would be found: /'
else
	echo "FAILED the counter-examples were not found; want:"
	echo "$want"
	echo "got:"
	echo "$got"
	exit 1
fi
