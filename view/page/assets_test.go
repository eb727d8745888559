// SPDX-License-Identifier: Apache-2.0

package page

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// What makes markup of text, runs text, or needs more than the policy allows. The browser refuses
// all of it: this test says so before a person sees an empty page.
var refused = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|javascript:|\son[a-z]+\s*=|<style|\sstyle\s*=|@import|url\(`)

var address = regexp.MustCompile(`(?:https?:)?//[a-z0-9.]+[.:/][^\s'"]*`)

func TestThePageLoadsNothingFromElsewhereAndMakesNoMarkupOfText(t *testing.T) {
	files := 0
	err := fs.WalkDir(assets, "assets", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		text, err := fs.ReadFile(assets, path)
		if err != nil {
			return err
		}
		for n, line := range strings.Split(string(text), "\n") {
			if found := refused.FindString(line); found != "" {
				t.Errorf("%s:%d has %q", path, n+1, found)
			}
			// The name of the language of drawings is no address that anybody asks.
			if found := address.FindString(strings.ReplaceAll(line, "http://www.w3.org/2000/svg", "")); found != "" {
				t.Errorf("%s:%d names %q", path, n+1, found)
			}
			if strings.Contains(line, "<script") && !strings.Contains(line, " src=") {
				t.Errorf("%s:%d has a script in it", path, n+1)
			}
		}
		return nil
	})
	if err != nil || files < 6 {
		t.Fatalf("%d files: %v", files, err)
	}
}

func TestWhatTheAssetsTestLooksForIsFound(t *testing.T) {
	for _, bad := range []string{"e.innerHTML = x", `<p onclick="x()">`, `<p style="color:red">`, "background: url(x.png)", "eval(x)"} {
		if !refused.MatchString(bad) {
			t.Errorf("%q is not found", bad)
		}
	}
	for _, bad := range []string{`src="https://cdn.example.com/x.js"`, `src="//cdn.example.com/x.js"`, `fetch('http://10.0.0.1:80/')`} {
		if !address.MatchString(bad) {
			t.Errorf("%q is not found", bad)
		}
	}
}

func TestBothDarkPalettesAreTheSame(t *testing.T) {
	text, err := fs.ReadFile(assets, "assets/page.css")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile(`(?s)color-scheme: dark;\s*(.*?)\}`).FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 2 {
		t.Fatalf("there are %d dark palettes, want that of the system and that of the button", len(blocks))
	}
	if strings.Join(strings.Fields(blocks[0][1]), " ") != strings.Join(strings.Fields(blocks[1][1]), " ") {
		t.Errorf("they differ:\n%s\n%s", blocks[0][1], blocks[1][1])
	}
}
