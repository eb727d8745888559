// SPDX-License-Identifier: Apache-2.0

package deviceshare_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// maxPageLines is how long a page may be. References are looked up, not read, and may be longer.
const maxPageLines = 200

var references = []string{"docs/wire.md"}

var (
	fence      = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	link       = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	heading    = regexp.MustCompile(`(?m)^#{1,6} +(.*?) *$`)
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// pages returns the text of every Markdown page of the repository by its path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "build" || (path != "." && strings.HasPrefix(d.Name(), "."))) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".md") {
			return nil
		}
		text, err := os.ReadFile(path)
		all[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d pages found: the rules would guard nothing", len(all))
	}
	return all
}

// links returns what a page links to, without the links in code.
func links(text string) []string {
	var out []string
	for _, m := range link.FindAllStringSubmatch(inlineCode.ReplaceAllString(fence.ReplaceAllString(text, ""), ""), -1) {
		out = append(out, m[1])
	}
	return out
}

// anchors returns the names under which GitHub makes a page's headings reachable.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		title := strings.ToLower(linkText.ReplaceAllString(m[1], "$1"))
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return r
			}
			return -1
		}, title)
		for n := 0; ; n++ {
			numbered := name
			if n > 0 {
				numbered += "-" + strconv.Itoa(n)
			}
			if !all[numbered] {
				all[numbered] = true
				break
			}
		}
	}
	return all
}

// resolve returns the path and the anchor that a link of a page means, and whether it
// leads into the repository.
func resolve(page, target string) (path, anchor string, internal bool) {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return "", "", false
	}
	path, anchor, _ = strings.Cut(target, "#")
	if path == "" {
		return page, anchor, true
	}
	return filepath.Join(filepath.Dir(page), path), anchor, true
}

// broken lists the links of a page that lead nowhere.
func broken(all map[string]string, page string) []string {
	var wrong []string
	for _, target := range links(all[page]) {
		path, anchor, internal := resolve(page, target)
		if !internal {
			continue
		}
		text, isPage := all[path]
		if _, err := os.Stat(path); err != nil && !isPage {
			wrong = append(wrong, target+": "+path+" is not there")
		} else if anchor != "" && !anchors(text)[anchor] {
			wrong = append(wrong, target+": "+path+" has no heading #"+anchor)
		}
	}
	return wrong
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	all := pages(t)
	for page := range all {
		for _, problem := range broken(all, page) {
			t.Errorf("%s links to %s", page, problem)
		}
	}
}

func TestBrokenLinksAreFound(t *testing.T) {
	all := map[string]string{
		"docs/a.md": "# It's a `b`: c\n## Again\n## Again\n```\n[x](no.md)\n```\n`[x](no.md)`\n" +
			"[1](b.md) [2](b.md#two-words) [3](#its-a-b-c) [4](#again-1) [5](https://example.com/no.md)",
		"docs/b.md": "# One\n\n## Two words\n",
		"c.md":      "[1](b.md) [2](docs/b.md#three) [3](#again-2) [4](docs/none)",
	}
	if got := broken(all, "docs/a.md"); len(got) > 0 {
		t.Errorf("links that lead somewhere are called broken: %q", got)
	}
	if got := broken(all, "c.md"); len(got) != 4 {
		t.Errorf("of 4 broken links these were found: %q", got)
	}
}

func TestPagesAreShort(t *testing.T) {
	for page, text := range pages(t) {
		if n := strings.Count(text, "\n"); n > maxPageLines && !slices.Contains(references, page) {
			t.Errorf("%s has %d lines, more than %d: divide it by what is asked", page, n, maxPageLines)
		}
	}
}

// A reader finds every page from docs/README.md: a page of docs/ itself in one step,
// others through further pages.
func TestEveryPageCanBeReachedFromTheMap(t *testing.T) {
	const start = "docs/README.md"
	all := pages(t)
	distance := map[string]int{start: 0}
	for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
		for _, target := range links(all[queue[0]]) {
			path, _, internal := resolve(queue[0], target)
			if _, isPage := all[path]; !isPage && internal {
				path = filepath.Join(path, "README.md") // a folder shows its README
			}
			if _, isPage := all[path]; !isPage {
				continue
			}
			if _, seen := distance[path]; !seen {
				distance[path] = distance[queue[0]] + 1
				queue = append(queue, path)
			}
		}
	}
	for page := range all {
		steps, reached := distance[page]
		switch {
		case !strings.HasPrefix(page, "docs/"):
		case !reached:
			t.Errorf("%s cannot be reached from %s", page, start)
		case filepath.Dir(page) == "docs" && steps > 1:
			t.Errorf("%s has no line in %s", page, start)
		}
	}
}

// strings that product code contains, outside the file of events.
func literals(t *testing.T) map[string]bool {
	t.Helper()
	texts := map[string]bool{}
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "e2e/") || file == eventsFile {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if text, ok := literal(n); ok {
				texts[text] = true
			}
			return true
		})
	}
	return texts
}

func literal(n ast.Node) (string, bool) {
	l, ok := n.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}

// eventsFile has the reasons of events, and nothing else.
const eventsFile = "sharing/events/events.go"

func TestEveryEventIsExplained(t *testing.T) {
	page, err := os.ReadFile("docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	f, err := parser.ParseFile(token.NewFileSet(), eventsFile, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, reasons := literals(t), 0
	ast.Inspect(f, func(n ast.Node) bool {
		reason, ok := literal(n)
		if !ok {
			return true
		}
		reasons++
		if !strings.Contains(string(page), "`"+reason+"`") && !strings.Contains(string(page), reason+"`") {
			t.Errorf("docs/events.md does not explain the event %s", reason)
		}
		if elsewhere[reason] {
			t.Errorf("%s is written out beside %s", reason, eventsFile)
		}
		return true
	})
	if reasons < 30 {
		t.Errorf("only %d reasons of events were found", reasons)
	}
}

func TestEveryMetricThatAPageNamesExists(t *testing.T) {
	texts, recorded := literals(t), recordedNames(t)
	metrics := 0
	for path, text := range pages(t) {
		for _, name := range regexp.MustCompile(`([a-z]+:)?deviceshare_[a-z_]+\b(:[a-z0-9]+)?`).FindAllString(text, -1) {
			if strings.HasSuffix(name, "_") || recorded[name] { // the beginning of several names
				continue
			}
			metrics++
			known := slices.ContainsFunc([]string{"", "deviceshare_", "deviceshare_node_", "deviceshare_container_", "deviceshare_node_device_", "deviceshare_node_partition_"}, func(prefix string) bool {
				short, begins := strings.CutPrefix(name, prefix)
				return begins && texts[short]
			})
			if !known {
				t.Errorf("%s names the metric %s, which no program has", path, name)
			}
		}
	}
	if metrics < 20 {
		t.Errorf("the pages name only %d metrics", metrics)
	}
}

// recordedNames are the metrics that the chart's rules record.
func recordedNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, file := range []string{"rules", "dcgm"} {
		text, err := os.ReadFile("manifests/chart/files/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^  - record: (\S+)$`).FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
	}
	return names
}
