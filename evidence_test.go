// SPDX-License-Identifier: Apache-2.0

package deviceshare_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// evidence is every test and every text of tests that a page may name.
type evidence struct {
	suites   map[string]bool   // of an installed cluster, with their parts as suite/part
	leftOut  map[string]string // those of them that `make test` leaves out, and what shows the same there
	gotests  string            // the Go tests
	literals string            // the suites
	ctests   string            // the C tests
	makefile string
}

var (
	suiteLine = regexp.MustCompile(`\{"([a-z_]+)", (?:r\.)?(test\w*)\}`)
	partLine  = regexp.MustCompile(`(?:t\.Run\(|part\(t, )"([a-z_]+)"`)
	leftLine  = regexp.MustCompile(`(?m)^\t\t"([a-z_/0-9-]+)": +"(.+)",$`)
	word      = regexp.MustCompile("`([^`]+)`")
	quoted    = regexp.MustCompile(`\*([^*…]+)…?\*`)
)

func gather(t *testing.T) evidence {
	t.Helper()
	e := evidence{suites: map[string]bool{}, literals: together(t, "e2e/suites", "_test.go"), ctests: together(t, "hami-core/test", ".c")}
	for _, dir := range []string{"deviceplugin", "sharing", "plugins", "config", "endpoint", "view", "cmd", "manifests"} {
		e.gotests += together(t, dir, "_test.go")
	}
	e.makefile = together(t, "Makefile", "Makefile")
	for _, m := range suiteLine.FindAllStringSubmatch(e.literals, -1) {
		e.suites[m[1]] = true
		_, body, _ := strings.Cut(e.literals, "\nfunc "+m[2]+"(")
		body, _, _ = strings.Cut(body, "\n}\n")
		for _, part := range partLine.FindAllStringSubmatch(body, -1) {
			e.suites[m[1]+"/"+part[1]] = true
		}
	}
	_, left, _ := strings.Cut(e.literals, "func leftOut() map[string]string {")
	left, _, _ = strings.Cut(left, "\n}\n")
	e.leftOut = map[string]string{}
	for _, m := range leftLine.FindAllStringSubmatch(left, -1) {
		e.leftOut[m[1]] = m[2]
	}
	if len(e.leftOut) < 20 {
		t.Fatalf("found that %v are left out: the rule would guard nothing", e.leftOut)
	}
	if len(e.suites) < 30 || !e.suites["worlds/no_cdi"] {
		t.Fatalf("found the suites %v: the rule would guard nothing", e.suites)
	}
	return e
}

// together is the text of all files below a path whose names end so.
func together(t *testing.T, root, end string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, end) {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// check returns what is wrong with a cell that names tests: each of its parts, which semicolons
// divide, names a suite, a Go test, test data, a C test or a command.
func (e evidence) check(cell string) error {
	var wrong []error
	for part := range strings.SplitSeq(cell, ";") {
		part = strings.TrimSpace(part)
		before, pods, _ := strings.Cut(part, ", pod")
		names := word.FindAllStringSubmatch(before, -1)
		text := quoted.FindStringSubmatch(part)
		if len(names) == 0 && text == nil {
			wrong = append(wrong, fmt.Errorf("%q names no test", part))
		}
		for _, m := range names {
			if !e.has(part, m[1]) {
				wrong = append(wrong, fmt.Errorf("%s is not there", m[1]))
			}
		}
		for _, m := range word.FindAllStringSubmatch(pods, -1) {
			if !strings.Contains(e.literals, `"`+m[1]+`"`) {
				wrong = append(wrong, fmt.Errorf("no suite has a pod %s", m[1]))
			}
		}
		if len(names) == 0 && text != nil && !strings.Contains(e.ctests, `TEST("`+text[1]) {
			wrong = append(wrong, fmt.Errorf("no C test is called %q", text[1]))
		}
	}
	return errors.Join(wrong...)
}

// has reports whether one name in a part of a cell is that of something there.
func (e evidence) has(part, name string) bool {
	switch {
	case strings.HasPrefix(part, "suite"):
		return e.suites[name]
	case strings.HasPrefix(name, "Test"):
		return strings.Contains(e.gotests, "func "+name+"(")
	case strings.HasPrefix(name, "testdata/"):
		found, _ := filepath.Glob("*/*/" + name)
		return len(found) > 0
	case strings.HasPrefix(name, "make "):
		return strings.Contains(e.makefile, "\n"+strings.TrimPrefix(name, "make ")+":")
	}
	return strings.HasPrefix(part, "`make ") // a word of its report
}

// rowsOf are the cells of the rows of a page's tables whose last column has a heading.
func rowsOf(page, last string) [][]string {
	var out [][]string
	inside := false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			inside = false
		case cells[len(cells)-1] == last:
			inside = true
		case inside && !strings.HasPrefix(line, "|--"):
			out = append(out, cells)
		}
	}
	return out
}

func TestNoRowOfTheTablesGivesEverythingAndEachIsShownByATest(t *testing.T) {
	all, e := pages(t), gather(t)
	for page, least := range map[string]int{"docs/security.md": 20, "docs/worlds.md": 20} {
		rows := rowsOf(all[page], "shown by")
		if len(rows) < least {
			t.Errorf("%s has %d rows, want at least %d", page, len(rows), least)
		}
		for _, row := range rows {
			gets, shown := strings.ToLower(inlineCode.ReplaceAllString(row[1], "")), row[len(row)-1]
			for _, no := range []string{"everything", "unlimited", "all of the device", "all devices"} {
				if gets == "" || strings.Contains(gets, no) {
					t.Errorf("%s: %s: a pod with a share gets %q", page, row[0], row[1])
				}
			}
			if slices.Contains(row, "") {
				t.Errorf("%s: %s: a cell is empty", page, row[0])
			}
			if strings.HasPrefix(shown, "not run: ") {
				continue
			}
			if err := e.check(shown); err != nil {
				t.Errorf("%s: %s: %v", page, row[0], err)
			}
		}
	}
}

// Who holds what is held by a suite or a test as well, beside what holds it.
func TestWhatHoldsPeopleIsShownByATest(t *testing.T) {
	e, rows := gather(t), rowsOf(pages(t)["docs/security.md"], "held by")
	if len(rows) < 10 {
		t.Errorf("%d rows, want at least 10", len(rows))
	}
	for _, row := range rows {
		shown := slices.DeleteFunc(strings.Split(row[3], ";"), func(part string) bool {
			return !strings.Contains(part, "suite") && !strings.Contains(part, "`Test") && !strings.Contains(part, "`make ")
		})
		if len(shown) == 0 && row[0] != "root on a node" {
			t.Errorf("%s: no test shows what holds them", row[0])
		}
		if err := e.check(strings.Join(shown, ";")); len(shown) > 0 && err != nil {
			t.Errorf("%s: %v", row[0], err)
		}
	}
}

// Each promise has a suite or a test in `make test`: what is left out there is shown by something
// else there, and is not what docs/develop.md names.
func TestEachPromiseIsShownByMakeTest(t *testing.T) {
	e, rows := gather(t), rowsOf(pages(t)["docs/develop.md"], "shown by")
	if len(rows) < 15 {
		t.Errorf("docs/develop.md has %d promises, want at least 15", len(rows))
	}
	rows = append(rows, rowsOf(pages(t)["docs/security.md"], "shown by")...)
	rows = append(rows, rowsOf(pages(t)["docs/security.md"], "held by")...)
	for _, row := range rows {
		shown := row[len(row)-1]
		if err := e.check(shown); len(row) == 3 && err != nil {
			t.Errorf("%s: %v", row[0], err)
		}
		for _, m := range word.FindAllStringSubmatch(shown, -1) {
			isShort := len(row) != 3 || row[1] == "`make test`"
			if isShort && strings.Contains(shown, "suite") && e.leftOut[m[1]] != "" {
				t.Errorf("%s: make test leaves out %s", row[0], m[1])
			}
		}
	}
	for name, instead := range e.leftOut {
		if err := e.check(instead); err != nil {
			t.Errorf("%s is left out: %v", name, err)
		}
		if suite, _, _ := strings.Cut(name, "/"); !e.suites[suite] {
			t.Errorf("%s is left out, and no suite is called so", name)
		}
		for _, m := range word.FindAllStringSubmatch(instead, -1) {
			if e.leftOut[m[1]] != "" {
				t.Errorf("%s is left out for %s, which is left out", name, m[1])
			}
		}
	}
}

// The worlds of containers and parts of the product that have to be there.
func TestTheTablesLeaveNothingOut(t *testing.T) {
	all := pages(t)
	for page, wanted := range map[string][]string{
		"docs/worlds.md": {"distroless", "nonroot", "read-only root", "own preload", "musl", "old glibc", "shared /tmp", "sudo", "setuid", "user namespace",
			"hostPID", "shared PID", "debug container", "crash loop", "init and app devices over a kubelet restart", "node reboot", "noexec"},
		"docs/security.md": {"webhook", "policy", "runtime", "library", "/etc/ld.so.preload", "our hook", "NVIDIA's hook", "the device plugin", "the scheduler is away",
			"ConfigMap", "the API server", "the limits file", "the disk"},
	} {
		for _, name := range wanted {
			if !slices.ContainsFunc(rowsOf(all[page], "shown by"), func(row []string) bool { return strings.Contains(row[0], name) }) {
				t.Errorf("%s has no row of %s", page, name)
			}
		}
	}
}

func TestARowThatIsShownByNothingIsFound(t *testing.T) {
	e := gather(t)
	for cell, right := range map[string]bool{
		"suite `worlds/no_cdi`":                             true,
		"suites `webhook`, `shapes`, pods `restricted`":     true,
		"suite `worlds/images`, pod `bare`; suite `forged`": true,
		"`make chaos`, event `fill`":                        true,
		"":                                                  false,
		"somebody tried it":                                 false,
		"suite `worlds/no_such`":                            false,
		"suite `no_cdi`":                                    false,
		"suite `shapes`, pod `nobody-s`":                    false,
		"agent: `TestWhatIsNotThere`":                       false,
		"node: `testdata/99-nothing.txt`":                   false,
		"entry: *no test has this name…*":                   false,
		"suite `forged`; agent: `TestWhatIsNotThere`":       false,
		"`make nothing`":                                    false,
	} {
		if err := e.check(cell); (err == nil) != right {
			t.Errorf("%q: %v", cell, err)
		}
	}
}
