// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"deviceshare/view/capture"
)

const (
	kubectlPage  = "../../docs/kubectl.md"
	capturesPage = "../../docs/captures.md"
)

// shown is a block of the page with commands and what they print of one of the tests' clusters.
var shown = regexp.MustCompile("(?ms)^<!-- of (\\w+) -->\n```\n(.*?)^```\n")

const prompt = "$ kubectl deviceshare "

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// printed runs the commands of a block and returns the block as it must be.
func printed(t *testing.T, path, block string) string {
	t.Helper()
	var outs []string
	for line := range strings.Lines(block) {
		arguments, ok := strings.CutPrefix(line, prompt)
		if !ok {
			continue
		}
		out, err := run(t, append(strings.Fields(arguments), "--from", path)...)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		outs = append(outs, line+out)
	}
	return strings.Join(outs, "\n")
}

func TestThePageShowsWhatTheCommandsPrint(t *testing.T) {
	clusters := map[string]string{"small": file(t, small()), "mixed": file(t, mixed())}
	text := readPage(t, kubectlPage)
	blocks := 0
	now := shown.ReplaceAllStringFunc(text, func(found string) string {
		blocks++
		parts := shown.FindStringSubmatch(found)
		path, ok := clusters[parts[1]]
		if !ok {
			t.Fatalf("there is no cluster %q", parts[1])
		}
		want := printed(t, path, parts[2])
		if want == "" {
			t.Errorf("a block without a command:\n%s", found)
		}
		if parts[2] != want && !*update {
			t.Errorf("%s shows, see -update:\n%s\nwant\n%s", kubectlPage, parts[2], want)
		}
		return strings.Replace(found, parts[2], want, 1)
	})
	if blocks < 4 {
		t.Fatalf("only %d blocks were compared", blocks)
	}
	if *update {
		if err := os.WriteFile(kubectlPage, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestThePageNamesEveryCommandAndFlag(t *testing.T) {
	text := readPage(t, kubectlPage)
	kubectl := pflag.NewFlagSet("kubectl", pflag.ContinueOnError)
	genericclioptions.NewConfigFlags(true).AddFlags(kubectl)
	root := rootCommand(genericiooptions.IOStreams{})
	check := func(flags *pflag.FlagSet) {
		flags.VisitAll(func(f *pflag.Flag) {
			named := strings.Contains(text, "--"+f.Name) || f.Shorthand != "" && strings.Contains(text, "-"+f.Shorthand+" ") ||
				f.Shorthand != "" && strings.Contains(text, "`-"+f.Shorthand+"`")
			if kubectl.Lookup(f.Name) == nil && !named {
				t.Errorf("it does not name --%s", f.Name)
			}
		})
	}
	check(root.PersistentFlags())
	for _, c := range root.Commands() {
		if !strings.Contains(text, "| `"+c.Use+"` |") {
			t.Errorf("its table does not have %q", c.Use)
		}
		check(c.Flags())
	}
}

// The page says what a capture is like, and this is how one begins.
func TestThePageShowsHowACaptureBegins(t *testing.T) {
	s := small()
	s.Scheduling = &capture.Scheduling{} // as one of a cluster has
	out, err := run(t, "capture", "-", "--from", file(t, s))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(out, "\n")
	if !strings.Contains(readPage(t, capturesPage), "\n"+first+"\n") || capture.Version != 2 {
		t.Errorf("it does not show the line %s", first)
	}
}
