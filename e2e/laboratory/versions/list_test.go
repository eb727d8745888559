// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rows are the first cells of the table rows of a page's section, each with its whole row.
func rows(page, section string) map[string]string {
	out := map[string]string{}
	_, rest, _ := strings.Cut(page, "\n## "+section+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	for line := range strings.Lines(rest) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			out[strings.Trim(cells[1], " `")] = line
		}
	}
	return out
}

func TestThePageHasEveryVersionThatIsRun(t *testing.T) {
	matrix := rows(read(t, "../../../docs/versions.md"), "Matrix")
	for _, version := range append(All(), Own) {
		if row := matrix[version]; !strings.Contains(row, "run") {
			t.Errorf("the matrix of docs/versions.md has no row of %s that says what came of the run: %q", version, row)
		}
	}
	// A version with its patch is one that was run.
	for version := range matrix {
		if !strings.Contains(version, ",") && strings.Count(version, ".") == 2 && !slices.Contains(append(All(), Own), version) {
			t.Errorf("the matrix of docs/versions.md has %s, which is not listed here", version)
		}
	}
}

func TestThePageAndTheInstallationHaveEverySuite(t *testing.T) {
	suites, installation := rows(read(t, "../../../docs/versions.md"), "What is run"), read(t, "../../suites/installation_test.go")
	last := 0
	for _, s := range Suites() {
		if _, ok := suites[s.Name]; !ok {
			t.Errorf("docs/versions.md does not say what suite %s is for: %s", s.Name, s.Uses)
		}
		at := strings.Index(installation, `{"`+s.Name+`", `)
		switch {
		case at < 0:
			t.Errorf("%s has no suite %s", testOfSuites, s.Name)
		case at < last:
			t.Errorf("suite %s runs earlier than it is listed", s.Name)
		}
		last = max(last, at)
	}
}

func TestTheOwnVersionIsTheSandboxes(t *testing.T) {
	if mod := read(t, "../../controlplane/go.mod"); !strings.Contains(mod, "k8s.io/kubernetes v"+Own+"\n") {
		t.Errorf("e2e/controlplane/go.mod does not require k8s.io/kubernetes v%s", Own)
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		named, want []string
		fails       string
	}{
		{nil, All(), ""},
		{[]string{"1.33"}, []string{"1.33.13"}, ""},
		{[]string{"1.34", "1.33.2"}, []string{Own, "1.33.2"}, ""},
		{[]string{"1.3"}, nil, `"1.3"`},
		{[]string{"1.20"}, nil, `"1.20"`},
	} {
		got, err := Choose(c.named)
		if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) || !slices.Equal(got, c.want) {
			t.Errorf("Choose(%q) = %q, %v; want %q, an error about %q", c.named, got, err, c.want, c.fails)
		}
	}
}
