// SPDX-License-Identifier: Apache-2.0

// Command generate makes the C sources of libvgpu that follow from hooks.def.
//
//	generate -def hooks.def -out build/gen
//	    writes hooks.gen.h, hooks.gen.c, exports.map, hooks.txt
//	generate -def hooks.def -check symbols.txt
//	    fails when a driver exports a twin that is not hooked
//
// symbols.txt holds one exported name a line, as `nm -D --defined-only` ends its lines.
// It needs the Go toolchain and nothing else.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	def := flag.String("def", "hooks.def", "the symbol table")
	out := flag.String("out", "", "directory to write the generated files to")
	check := flag.String("check", "", "file with the symbols that a driver exports")
	flag.Parse()
	if err := run(*def, *out, *check); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(def, out, check string) error {
	text, err := os.ReadFile(def)
	if err != nil {
		return fmt.Errorf("reading the symbol table: %w", err)
	}
	symbols, err := parse(def, string(text))
	if err != nil {
		return err
	}
	if check != "" {
		return checkFile(symbols, check)
	}
	if out == "" {
		return fmt.Errorf("neither -out nor -check is given")
	}
	return writeAll(symbols, out)
}

func checkFile(symbols []symbol, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the driver's symbols: %w", err)
	}
	missing := missingTwins(symbols, strings.Fields(string(text)))
	if len(missing) > 0 {
		return fmt.Errorf("hooked families have members that are not hooked: %s", strings.Join(missing, ", "))
	}
	return nil
}

func writeAll(symbols []symbol, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the output directory: %w", err)
	}
	files := map[string]string{
		"hooks.gen.h": header(symbols),
		"hooks.gen.c": source(symbols),
		"exports.map": exportMap(symbols),
		"hooks.txt":   exportList(symbols),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}
