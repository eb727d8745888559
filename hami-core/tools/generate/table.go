// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// symbol is one line of hooks.def.
type symbol struct {
	library string // "cuda" or "nvml"
	hook    bool   // exported by us; otherwise only called
	ignored bool   // known, and neither hooked nor called
	pace    bool   // a hook that is jumped over while nothing is limited
	since   int    // CUDA version, 1000*major+10*minor
	name    string // as the linker sees it
	body    string // hook_<body> stands behind it
	args    string // C parameter list with its parentheses
}

var (
	linePattern   = regexp.MustCompile(`^(\S+)\s+(\S+)\s+(\d+)\s+(\w+)\s+(\S+)\s+(\(.*\))$`)
	suffixPattern = regexp.MustCompile(`(_v[0-9]+)?(_pt[sd][sz])?$`)
)

// base is the name without version and stream suffix: what cuGetProcAddress is asked for.
func base(name string) string {
	return name[:suffixPattern.FindStringIndex(name)[0]]
}

func (s symbol) perThread() bool {
	return strings.HasSuffix(s.name, "_ptsz") || strings.HasSuffix(s.name, "_ptds")
}

// result is the C type that functions of the library return.
func (s symbol) result() string {
	if s.library == "nvml" {
		return "nvmlReturn_t"
	}
	return "CUresult"
}

// parameters are the names in the argument list, in order.
func (s symbol) parameters() []string {
	inner := strings.Trim(s.args, "()")
	if inner == "void" {
		return nil
	}
	var names []string
	for _, arg := range strings.Split(inner, ",") {
		names = append(names, regexp.MustCompile(`\w+$`).FindString(strings.TrimSpace(arg)))
	}
	return names
}

// parse reads hooks.def. It reports every mistake, sorted by line; symbols come back sorted
// by name.
func parse(file, text string) ([]symbol, error) {
	var symbols []symbol
	var mistakes []error
	seen := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s, err := parseLine(line)
		if err == nil && seen[s.name] {
			err = fmt.Errorf("%s is given twice", s.name)
		}
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s:%d: %w", file, i+1, err))
			continue
		}
		seen[s.name] = true
		if !s.ignored {
			symbols = append(symbols, s)
		}
	}
	sort.Slice(symbols, func(i, j int) bool { return symbols[i].name < symbols[j].name })
	mistakes = append(mistakes, bodyMistakes(symbols)...)
	mistakes = append(mistakes, streamMistakes(symbols, seen)...)
	return symbols, errors.Join(mistakes...)
}

func parseLine(line string) (symbol, error) {
	f := linePattern.FindStringSubmatch(line)
	if f == nil {
		return symbol{}, fmt.Errorf("want <library> <class> <since> <symbol> <body> (<arguments>), got %q", line)
	}
	since, err := strconv.Atoi(f[3])
	if err != nil {
		return symbol{}, fmt.Errorf("since: %w", err)
	}
	s := symbol{library: f[1], hook: f[2] == "hook" || f[2] == "pace", ignored: f[2] == "none", pace: f[2] == "pace", since: since, name: f[4], body: f[5], args: f[6]}
	switch {
	case s.library != "cuda" && s.library != "nvml":
		return s, fmt.Errorf("library %s: want cuda or nvml", s.library)
	case !s.hook && !s.ignored && f[2] != "call":
		return s, fmt.Errorf("class %s: want hook, pace, call or none", f[2])
	case s.hook == (s.body == "-"):
		return s, fmt.Errorf("%s: a hook has a body and another has none ('-')", s.name)
	}
	return s, nil
}

// bodyMistakes lists twins that share a body and not the arguments.
func bodyMistakes(symbols []symbol) []error {
	var mistakes []error
	args := map[string]string{}
	for _, s := range symbols {
		if !s.hook {
			continue
		}
		if known, ok := args[s.body]; ok && known != s.args {
			mistakes = append(mistakes, fmt.Errorf("%s: other arguments than another user of body %s", s.name, s.body))
		}
		args[s.body] = s.args
	}
	return mistakes
}

// noTwin names functions on a stream that never had a per-thread twin.
const noTwin = "cuLaunchGridAsync"

// streamMistakes lists hooks on a stream without their per-thread twin.
func streamMistakes(symbols []symbol, seen map[string]bool) []error {
	var mistakes []error
	for _, s := range symbols {
		if s.hook && strings.Contains(s.args, "CUstream ") && !s.perThread() && s.name != noTwin && !seen[s.name+"_ptsz"] {
			mistakes = append(mistakes, fmt.Errorf("%s takes a stream and has no twin %s_ptsz", s.name, s.name))
		}
	}
	return mistakes
}

// missingTwins lists exported names whose family is hooked and which are not, sorted.
func missingTwins(symbols []symbol, exported []string) []string {
	families, known := map[string]bool{}, map[string]bool{}
	for _, s := range symbols {
		known[s.name] = true
		if s.hook {
			families[base(s.name)] = true
		}
	}
	var missing []string
	for _, name := range exported {
		if families[base(name)] && !known[name] {
			missing = append(missing, name)
		}
	}
	sort.Strings(missing)
	return missing
}
