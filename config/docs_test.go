// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"regexp"
	"testing"

	"sigs.k8s.io/yaml"

	"deviceshare/config"
	"deviceshare/sharing/mig"
	"deviceshare/sharing/sharingtest"
)

// blocks returns the YAML in a text for people.
func blocks(t *testing.T, file string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found [][]byte
	for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// Every example of docs/mig.md loads, and every group in it can be cut on some
// card.
func TestTheExamplesForTheAdministratorLoad(t *testing.T) {
	configs, pods := 0, 0
	for i, block := range blocks(t, "../docs/mig.md") {
		var head struct {
			Kind string         `json:"kind"`
			Spec map[string]any `json:"spec"`
		}
		if err := yaml.Unmarshal(block, &head); err != nil {
			t.Fatalf("block %d: %v", i, err)
		}
		if head.Kind == "Pod" {
			if pods++; head.Spec["schedulerName"] != "volcano" || head.Spec["containers"] == nil {
				t.Errorf("block %d is no pod for this scheduler", i)
			}
			continue
		}
		configs++
		d, problems := config.LoadDevice(block)
		if len(problems) > 0 {
			t.Errorf("block %d: %v", i, problems)
		}
		cuttable(t, d)
	}
	if configs < 3 || pods < 1 {
		t.Errorf("only %d configurations and %d pods found", configs, pods)
	}
}

// The default geometries can be cut on the cards they are for.
func TestTheDefaultGeometriesCanBeCut(t *testing.T) { cuttable(t, config.DefaultDevice()) }

func cuttable(t *testing.T, d config.Device) {
	t.Helper()
	for _, m := range sharingtest.Models() {
		if m.MIG == nil {
			continue
		}
		cut := *m.MIG
		cut.Geometries = d.Geometries(m.Name)
		for i := range cut.Geometries {
			if _, ok := mig.At(&cut, cut.Geometries[i].Name, 0); !ok {
				t.Errorf("%s cannot be cut as geometry %q says", m.Name, cut.Geometries[i].Name)
			}
		}
	}
}
