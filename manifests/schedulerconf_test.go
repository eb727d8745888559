// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "volcano.sh/volcano/pkg/scheduler/actions"

	"deviceshare/plugins/deviceshare"
	"deviceshare/plugins/schedulerconf"
)

// Helm refuses a scheduler's configuration with an action that is not known, or without the plugin.
// It cannot know the rest, and refuses nothing that the program accepts.
func TestHelmRefusesAConfigurationThatTheSchedulerRefuses(t *testing.T) {
	deviceshare.RegisterActions()
	known := schedulerconf.Known{Action: schedulerconf.Registered().Action, Plugin: func(string) bool { return true }}
	files, err := filepath.Glob("../plugins/schedulerconf/testdata/*.conf")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text := read(t, file)
			mistakes := schedulerconf.Read(text, known).Mistakes
			seen := slices.ContainsFunc(mistakes, func(m string) bool {
				return strings.Contains(m, "unknown action") || strings.Contains(m, "later version") || strings.Contains(m, "is in none of them") || strings.Contains(m, "cannot start any token")
			})
			_, err := template(t, values{"scheduler.config": text})
			if (err != nil) != seen || err != nil && !strings.Contains(err.Error(), "scheduler.config: ") {
				t.Errorf("the scheduler says %q, helm %v", mistakes, err)
			}
		})
	}
}
