// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

const banner = "/* SPDX-License-Identifier: Apache-2.0 */\n/* Generated from hooks.def by tools/generate. Do not edit. */\n"

// header declares the ids of all symbols, the types of the originals and the bodies of the hooks.
func header(symbols []symbol) string {
	var b strings.Builder
	b.WriteString(banner + "#ifndef HOOKS_GEN_H\n#define HOOKS_GEN_H\n\n#include \"cuda_abi.h\"\n#include \"nvml_abi.h\"\n\nenum symbol_id {\n")
	for _, s := range symbols {
		fmt.Fprintf(&b, "\tID_%s,\n", s.name)
	}
	b.WriteString("\tSYMBOL_COUNT\n};\n\n")
	done := map[string]bool{}
	for _, s := range symbols {
		fmt.Fprintf(&b, "typedef %s (*fn_%s)%s;\n", s.result(), s.name, s.args)
		if s.hook && !done[s.body] {
			done[s.body] = true
			fmt.Fprintf(&b, "typedef fn_%s original_%s;\n%s hook_%s(%s);\n",
				s.name, s.body, s.result(), s.body, withOriginal(s))
		}
	}
	b.WriteString("\n#endif\n")
	return b.String()
}

func withOriginal(s symbol) string {
	inner := strings.Trim(s.args, "()")
	if inner == "void" {
		return "original_" + s.body + " original"
	}
	return "original_" + s.body + " original, " + inner
}

// jump is the exported wrapper of a launch: two loads and a jump while nothing is limited,
// and little more for a launch that only adds to its thread's batch. It keeps the
// arguments where they are, which it could not if it called anything.
func jump(s symbol) string {
	call := strings.Join(s.parameters(), ", ")
	original := fmt.Sprintf("\tfn_%s original = (fn_%s)original_known(ID_%s);\n", s.name, s.name, s.name)
	return fmt.Sprintf("static __attribute__((noinline)) %s paced_%s%s\n{\n"+original+
		"\tif (__builtin_expect(original && counts_%s(%s), 1))\n\t\treturn original(%s);\n\treturn held_%s(%s);\n}\n\n",
		s.result(), s.name, s.args, s.body, call, call, s.name, call) +
		fmt.Sprintf("EXPORT %s %s%s;\n%s %s%s\n{\n"+original+
			"\tif (__builtin_expect(original && limiter_idle(), 1))\n\t\treturn original(%s);\n\treturn paced_%s(%s);\n}\n\n",
			s.result(), s.name, s.args, s.result(), s.name, s.args, call, s.name, call)
}

// source holds the exported wrappers and the table of all symbols, sorted by name.
func source(symbols []symbol) string {
	var b strings.Builder
	b.WriteString(banner + "#define _GNU_SOURCE\n#include <dlfcn.h>\n\n#include \"hooks.gen.h\"\n#include \"compute/limiter.h\"\n#include \"driver/resolve.h\"\n#include \"hooks/launch_key.h\"\n\n")
	for _, s := range symbols {
		if !s.hook {
			continue
		}
		call := strings.Join(append([]string{"original"}, s.parameters()...), ", ")
		outer := fmt.Sprintf("EXPORT %s %s%s;\n%s %s%s", s.result(), s.name, s.args, s.result(), s.name, s.args)
		if s.pace {
			outer = fmt.Sprintf("static __attribute__((noinline)) %s held_%s%s", s.result(), s.name, s.args)
		}
		fmt.Fprintf(&b, "%s\n{\n\tfn_%s original = (fn_%s)original_of(ID_%s);\n"+
			"\tif (!original)\n\t\treturn original_missing(ID_%s);\n\treturn hook_%s(%s);\n}\n\n",
			outer, s.name, s.name, s.name, s.name, s.body, call)
		if s.pace {
			b.WriteString(jump(s))
		}
	}
	b.WriteString("const struct symbol symbols[SYMBOL_COUNT] = {\n")
	for _, s := range symbols {
		hook := "0"
		if s.hook {
			hook = "(void *)" + s.name
		}
		perThread := 0
		if s.perThread() {
			perThread = 1
		}
		fmt.Fprintf(&b, "\t{\"%s\", \"%s\", LIBRARY_%s, %d, %d, %s},\n",
			s.name, base(s.name), strings.ToUpper(s.library), s.since, perThread, hook)
	}
	b.WriteString("};\n\nconst struct lookup_function lookup_functions[] = {\n")
	for _, name := range lookups {
		fmt.Fprintf(&b, "\t{\"%s\", (void *)%s},\n", name, name)
	}
	b.WriteString("\t{0, 0},\n};\n")
	return b.String()
}

// lookups are the C library's functions that lead to a symbol, which the library has, too.
var lookups = []string{"dlmopen", "dlopen", "dlsym", "dlvsym"}

// exportList has the exported names, one a line, sorted.
func exportList(symbols []symbol) string {
	var b strings.Builder
	for _, s := range symbols {
		if s.hook {
			fmt.Fprintln(&b, s.name)
		}
	}
	fmt.Fprintln(&b, strings.Join(lookups, "\n"))
	return b.String()
}

// exportMap is the linker's version script. The library exports the hooks and its look-ups, all
// without a symbol version, and nothing else.
func exportMap(symbols []symbol) string {
	names := strings.Fields(exportList(symbols))
	return "/* Generated from hooks.def by tools/generate. */\n{\n\tglobal:\n\t\t" +
		strings.Join(names, ";\n\t\t") + ";\n\tlocal: *;\n};\n"
}
