// SPDX-License-Identifier: Apache-2.0

package preload

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const ours = "/usr/local/vgpu/libvgpu.so"

func TestTheImagesLibrariesFollowOurs(t *testing.T) {
	tests := map[string]struct{ image, want string }{
		"an image without a file":                         {"", ""},
		"a file of one line":                              {"/lib/a.so\n", "/lib/a.so\n"},
		"a file without an end of its last line":          {"/lib/a.so", "/lib/a.so\n"},
		"two lines, in their order":                       {"/lib/b.so\n/lib/a.so\n", "/lib/b.so\n/lib/a.so\n"},
		"spaces, tabs and colons divide names":            {"/lib/a.so /lib/b.so\t/lib/c.so:/lib/d.so", "/lib/a.so\n/lib/b.so\n/lib/c.so\n/lib/d.so\n"},
		"nothing but separators":                          {" :\t\n\n::", ""},
		"a comment":                                       {"# /lib/a.so\n/lib/b.so\n", "/lib/b.so\n"},
		"a comment behind a name":                         {"/lib/a.so# and why\n/lib/b.so # too\n", "/lib/a.so\n/lib/b.so\n"},
		"a comment that ends the file":                    {"/lib/a.so\n#", "/lib/a.so\n"},
		"a comment in front of everything":                {"#", ""},
		"a library that is named twice":                   {"/lib/a.so\n/lib/b.so:/lib/a.so\n", "/lib/a.so\n/lib/b.so\n"},
		"our own line among the image's":                  {"/lib/a.so\n" + ours + "\n/lib/b.so\n", "/lib/a.so\n/lib/b.so\n"},
		"our own line in a comment":                       {"#" + ours + "\n", ""},
		"a name that begins as ours":                      {ours + ".1\n", ours + ".1\n"},
		"a NUL byte ends the file":                        {"/lib/a.so\x00/lib/b.so\n/lib/c.so\n", "/lib/a.so\n"},
		"a NUL byte in a comment does not":                {"/lib/a.so #\x00\n/lib/b.so\n", "/lib/a.so\n/lib/b.so\n"},
		"a NUL byte at the beginning":                     {"\x00/lib/a.so", ""},
		"a name with the loader's own words":              {"/usr/$LIB/a.so\n$ORIGIN/b.so", "/usr/$LIB/a.so\n$ORIGIN/b.so\n"},
		"a name without a folder":                         {"libjemalloc.so.2\n", "libjemalloc.so.2\n"},
		"an end of line of another system is of the name": {"/lib/a.so\r\n", "/lib/a.so\r\n"},
		"bytes that are no text":                          {"/lib/\xff\xfe.so\n", "/lib/\xff\xfe.so\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			image := []byte(tc.image)
			if got := string(Merge(ours, image)); got != ours+"\n"+tc.want {
				t.Errorf("merged:\n%q\nwant\n%q", got, ours+"\n"+tc.want)
			}
			if string(image) != tc.image {
				t.Error("the argument was changed")
			}
		})
	}
}

// loaded is what a loader would load of a file, by the steps of the manual page ld.so(8) and of
// glibc's do_preload: byte by byte, on a copy. It is what Merge is compared with.
func loaded(file []byte) []string {
	text, comment := bytes.Clone(file), false
	for i, b := range text {
		comment = b != '\n' && (comment || b == '#')
		if comment {
			text[i] = ' '
		}
	}
	var names []string
	name := ""
	for _, b := range append(text, '\n') {
		if b == 0 {
			b = '\n'
		}
		if b != ' ' && b != '\t' && b != ':' && b != '\n' {
			name += string([]byte{b})
			continue
		}
		if name != "" {
			names = append(names, name)
		}
		name = ""
	}
	return names
}

// holds checks what is true of every merged file.
func holds(t *testing.T, image []byte) {
	t.Helper()
	merged := Merge(ours, image)
	got := loaded(merged)
	if len(got) == 0 || got[0] != ours {
		t.Fatalf("of %q a loader does not load our library first: %q", image, got)
	}
	if bytes.IndexByte(merged, 0) >= 0 || bytes.Count(merged, []byte(ours+"\n")) < 1 || merged[len(merged)-1] != '\n' {
		t.Fatalf("of %q comes %q", image, merged)
	}
	if again := Merge(ours, merged); !bytes.Equal(again, merged) {
		t.Fatalf("merged twice %q becomes %q", merged, again)
	}
	if bytes.IndexByte(image, 0) >= 0 {
		return // what stands behind it is not loaded: the table says which
	}
	want := []string{ours}
	for _, name := range loaded(image) {
		if !slices.Contains(want, name) {
			want = append(want, name)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("of %q a loader loads %q, want %q", image, got, want)
	}
}

func TestWhateverTheImageSaysOursIsFirstAndNothingIsLost(t *testing.T) {
	words := []string{"/lib/a.so", "/lib/b.so", ours, "#", " ", "\t", ":", "\n", "\x00", "\r", "\xff", "é", "x"}
	random := rand.New(rand.NewPCG(7, 7))
	for range 20_000 {
		var b strings.Builder
		for range random.IntN(12) {
			b.WriteString(words[random.IntN(len(words))])
		}
		holds(t, []byte(b.String()))
	}
}

func FuzzMerge(f *testing.F) {
	for _, seed := range []string{"", "/lib/a.so\n", "#\x00", ours + "#:", "\x00" + ours, ":/a b\tc"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(holds)
}
