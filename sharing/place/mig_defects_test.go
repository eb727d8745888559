// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest"
)

// In-tree: trying a pod in mode mig marks no instance, so that its second
// container may get the first one's, and taking the try back subtracts what was
// asked from what was never added.
func TestDefect24_ATryThatIsTakenBackLeavesPartitionsAsTheyWere(t *testing.T) {
	for says, d := range map[string]sharing.Device{
		"first-match": sharingtest.Device(0, "A100-80", sharing.MIG),
		"best-fit":    sharingtest.BestFit(sharingtest.Free(sharingtest.Device(0, "A100-80", sharing.MIG))),
	} {
		b := onNode(t, d)
		b.place(sharingtest.Pod("there", sharingtest.Ask("main", 15000, 20)))
		before := *b.view(0)
		for range 3 {
			_, refusals := b.try(sharingtest.Pod("pod", sharingtest.Ask("a", 15000, 20), sharingtest.Ask("b", 60000, 0)))
			if !refusals.Refused() || refusals.Container != "b" {
				t.Fatalf("%s: %s", says, refusals.String())
			}
		}
		if !reflect.DeepEqual(before, *b.view(0)) {
			t.Errorf("%s: %v used, %v before", says, b.view(0).UsedMemory(), before.UsedMemory())
		}
		two := b.place(sharingtest.Pod("two", sharingtest.Ask("a", 15000, 20), sharingtest.Ask("b", 15000, 20)))
		p, q := two.Containers[0].Shares[0].Partition, two.Containers[1].Shares[0].Partition
		if p.Overlaps(q) {
			t.Errorf("%s: %+v and %+v", says, p, q)
		}
		b.ledger.Release("two")
		if !reflect.DeepEqual(before, *b.view(0)) {
			t.Errorf("%s: something of a pod that left is still used", says)
		}
	}
}

// docs/mig.md names a test for every defect.
func TestEveryDefectInTheDocumentHasItsTest(t *testing.T) {
	text, err := os.ReadFile("../../docs/mig.md")
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	for _, dir := range []string{"..", "../../config", "../../plugins/compatibility", "../../deviceplugin/modes"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, "_test.go") {
				var src []byte
				src, err = os.ReadFile(path)
				sources.Write(src)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	rows := regexp.MustCompile("(?m)^\\|.*\\| `(Test\\w+)`( \\(node\\))? \\|$").FindAllSubmatch(text, -1)
	if len(rows) < 20 {
		t.Fatalf("only %d rows", len(rows))
	}
	for _, row := range rows {
		if !strings.Contains(sources.String(), "func "+string(row[1])+"(t *testing.T)") {
			t.Errorf("docs/mig.md names %s, which is not there", row[1])
		}
	}
}
