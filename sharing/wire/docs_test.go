// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestEveryKeyAndFieldIsDocumented(t *testing.T) {
	docs, err := os.ReadFile("../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	for file, pattern := range map[string]string{
		"keys.go": `= "([^"]+)"`, "inventory.go": `json:"(\w+)`, "partitioning.go": `json:"(\w+)`, "placement.go": `json:"(\w+)`,
		"../../config/read.go": `o\.\w+\("(\w+)"`, "../../config/node.go": `[of]\.\w+\("(\w+)"`,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
		if len(found) < 5 {
			t.Fatalf("%s: the pattern finds only %d names", file, len(found))
		}
		for _, m := range found {
			if !strings.Contains(string(docs), "`"+m[1]) && !strings.Contains(string(docs), `"`+m[1]+`"`) {
				t.Errorf("docs/wire.md does not mention %s of %s", m[1], file)
			}
		}
	}
}
