# SPDX-License-Identifier: Apache-2.0
# What failing tests have said, and which hung, out of the output of `go test`, with -v or without.
/^panic: / { stopped = 1 }
stopped && /^$/ { stopped = 0 }
stopped { ended = ended $0 "\n" }
/^=== (RUN|NAME|CONT) / { test = $3; next }
/^ *--- (FAIL|PASS|SKIP): / { test = $3; if ($2 == "FAIL:") failed[test] = 1; inside = 0; next }
/^ *[A-Za-z0-9_]+\.go:[0-9]+: / { inside = 1; match($0, /^ */); indent = RLENGTH }
inside {
	match($0, /^ */)
	if (RLENGTH < indent) inside = 0
	else said[test] = said[test] $0 "\n"
}
END { for (test in failed) if (said[test] != "") printf "%s said:\n%s", test, said[test]; printf "%s", ended }
