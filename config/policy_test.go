// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"strings"
	"testing"

	"deviceshare/config"
	"deviceshare/sharing"
)

func TestHowPartitionsAreChosen(t *testing.T) {
	const groups = "[{group: g, geometries: [{name: 1g.5gb, memory: 1, count: 1}]}]"
	for says, c := range map[string]struct {
		text   string
		policy sharing.PartitionPolicy
		groups int
	}{
		"nothing written is first-match of the default list": {"nvidia: {deviceSplitCount: 3}", sharing.FirstMatch, 4},
		"first-match of the default list":                    {"nvidia: {migPolicy: first-match}", sharing.FirstMatch, 4},
		"best-fit without a list is any legal layout":        {"nvidia: {migPolicy: best-fit}", sharing.BestFit, 0},
		"best-fit with a list is bound by it": {
			"nvidia: {migPolicy: best-fit, knownMigGeometries: [{models: [A100], allowedGeometries: " + groups + "}]}", sharing.BestFit, 1,
		},
		"best-fit with the default list written out is bound by it": {
			strings.Replace(defaultText(t), "migPolicy: first-match", "migPolicy: best-fit", 1), sharing.BestFit, 4,
		},
		"an entry says otherwise": {
			"nvidia: {migPolicy: best-fit, knownMigGeometries: [{models: [A100], migPolicy: first-match, allowedGeometries: " + groups + "}]}", sharing.FirstMatch, 1,
		},
		"one model may be cut at will": {
			"nvidia: {knownMigGeometries: [{models: [A100], migPolicy: best-fit, allowedGeometries: []}]}", sharing.BestFit, 0,
		},
		"an entry of another model says nothing": {
			"nvidia: {knownMigGeometries: [{models: [H100], migPolicy: best-fit, allowedGeometries: []}]}", sharing.FirstMatch, 0,
		},
	} {
		t.Run(says, func(t *testing.T) {
			d, problems := config.LoadDevice([]byte(c.text))
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			const model = "NVIDIA A100-SXM4-40GB"
			if d.Policy(model) != c.policy || len(d.Geometries(model)) != c.groups {
				t.Errorf("%v of %d groups, want %v of %d", d.Policy(model), len(d.Geometries(model)), c.policy, c.groups)
			}
		})
	}
}

func TestProblemsOfPolicies(t *testing.T) {
	_, problems := config.LoadDevice([]byte(`
nvidia:
  migPolicy: BestFit
  knownMigGeometries:
    - {models: [A100], allowedGeometries: [], migPolicy: 1}
    - {models: [A30], allowedGeometries: [], migPolicy: ""}
    - {models: [H100], allowedGeometries: [], migpolicy: best-fit}
`))
	compare(t, problems, []string{
		`nvidia.migPolicy: "BestFit" is not a policy: want first-match or best-fit`,
		"nvidia.knownMigGeometries[0].migPolicy: is the number 1, want a text",
		`nvidia.knownMigGeometries[1].migPolicy: "" is not a policy: want first-match or best-fit`,
		"nvidia.knownMigGeometries[2].migpolicy: is not known: write migPolicy",
	})
}

// A node that learns of policies must not refuse what was placed before, and one
// whose policy changes must.
func TestThePolicyIsPartOfTheGeometryHash(t *testing.T) {
	hash := func(text string) string {
		d, problems := config.LoadDevice([]byte(text))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return d.GeometryHash()
	}
	const entry = "knownMigGeometries: [{models: [A30], allowedGeometries: []"
	seen := map[string]string{}
	for _, text := range []string{
		"nvidia: {" + entry + "}]}",
		"nvidia: {migPolicy: best-fit, " + entry + "}]}",
		"nvidia: {" + entry + ", migPolicy: best-fit}]}",
		"nvidia: {migPolicy: best-fit}",
		"nvidia: {}",
	} {
		h := hash(text)
		if other, twice := seen[h]; twice {
			t.Errorf("%s and %s have the same hash", text, other)
		}
		seen[h] = text
	}
	if hash("nvidia: {}") != hash("nvidia: {migPolicy: first-match}") {
		t.Error("writing the default changes the hash")
	}
	if got := hash("nvidia: {" + entry + "}]}"); got != "c6b63c2d31c1b2a5" {
		t.Errorf("the hash of a list without policies was c6b63c2d31c1b2a5 and is %s", got)
	}
}

// In-tree: the text between the brackets of uuid[group-position] is split at
// every dash, and must have two parts.
func TestDefectAGroupNameThatBreaksTheIDIsRefused(t *testing.T) {
	for _, name := range []string{"group-1", "group[1", "group]1", "a b", "", "free", "a,b", "a:b", "a;b"} {
		text := `nvidia: {knownMigGeometries: [{models: [A100], allowedGeometries: [{group: "` + name + `", geometries: [{name: 1g.5gb, memory: 1, count: 1}]}]}]}`
		if _, problems := config.LoadDevice([]byte(text)); len(problems) != 1 || !strings.HasSuffix(problems[0].Path, "allowedGeometries[0].group") {
			t.Errorf("%q: %v", name, problems)
		}
	}
}
