// SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deviceshare/sharing/factory"
	"deviceshare/view/simulate"
)

// Under each configuration that people find in documentation, a pod with devices is placed with a
// device, or waits and is told why, or the configuration is refused. None places it without.
func TestNoConfigurationPlacesAPodWithoutADevice(t *testing.T) {
	files, err := filepath.Glob("../../plugins/schedulerconf/testdata/*.conf")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	placed := 0
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			q := simulate.Question{Backends: factory.New(), SchedulerName: "volcano", Config: string(text), Add: added(t, asks("fits", share(4096))+asks("huge", share(2*memory)))}
			w, err := simulate.Run(captured(node("a", 1)), &q)
			if err != nil {
				if !strings.Contains(err.Error(), "read the scheduler's configuration: ") {
					t.Error(err)
				}
				return
			}
			if o := outcome(t, w, "default/huge"); o.Node != "" || o.Why == "" {
				t.Errorf("a pod that fits nowhere: %+v", o)
			}
			fits := outcome(t, w, "default/fits")
			if (fits.Node != "") != (len(fits.Holds) > 0) || fits.Node == "" && fits.Why == "" {
				t.Errorf("got %+v", fits)
			}
			if fits.Node != "" {
				placed++
			}
		})
	}
	if placed < 15 {
		t.Errorf("only %d configurations place a pod that fits", placed)
	}
}
