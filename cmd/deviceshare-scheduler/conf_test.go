// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler"

	"deviceshare/sharing/events"
	"deviceshare/sharing/rivals"
)

// told is what was reported of a ConfigMap.
type told chan string

func (r told) Report(object *corev1.ObjectReference, reason, message string) {
	r <- strings.Join([]string{object.Kind, object.Namespace + "/" + object.Name, reason, message}, " ")
}

func (told) Tell(*corev1.ObjectReference, string, string) {}

const goodConfiguration = "actions: \"Enqueue, allocate,\"\ntiers:\n- plugins:\n  - name: deviceshare\n"

func TestVolcanoReadsACopyAndMistakesAreEventsOfTheConfigMap(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	file := filepath.Join(t.TempDir(), "scheduler.conf")
	write := func(text string) {
		fresh := file + ".new" // at once and whole, as the kubelet does
		if err := os.WriteFile(fresh, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(fresh, file); err != nil {
			t.Fatal(err)
		}
	}
	write(goodConfiguration)
	said := make(told, 10)
	volcano := &options.ServerOption{SchedulerConf: file}
	guard, err := guardConfiguration(volcano, "ns/config", said)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := os.ReadFile(volcano.SchedulerConf)
	if err != nil || volcano.SchedulerConf == file || !volcano.DisableDefaultSchedulerConfig {
		t.Fatalf("Volcano reads %s, with its defaults: %v, %v", volcano.SchedulerConf, !volcano.DisableDefaultSchedulerConfig, err)
	}
	if actions, _, _, _, err := scheduler.UnmarshalSchedulerConf(string(copied)); err != nil || len(actions) != 2 {
		t.Errorf("Volcano reads %d actions: %v", len(actions), err)
	}
	write(strings.Replace(goodConfiguration, "allocate", "alocate", 1))
	select {
	case got := <-said:
		if want := "ConfigMap ns/config " + events.SchedulerConfigurationInvalid + ` actions[1]: unknown action "alocate"`; !strings.HasPrefix(got, want) {
			t.Errorf("said %q", got)
		}
	case <-time.After(10 * time.Minute):
		t.Fatal("the mistake is not told")
	}
	if err := guard.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestASchedulerLooksForAnotherOneIfItKnowsItsDeployment(t *testing.T) {
	if l, err := newLookout(nil, "", rivals.Object{}, nil, nil); l != nil || err != nil {
		t.Errorf("without a Deployment: %v, %v", l, err)
	}
	if _, err := newLookout(nil, "scheduler", rivals.Object{}, nil, nil); err == nil || err.Error() != `--deviceshare-deployment: want namespace/name, got "scheduler"` {
		t.Errorf("without its namespace: %v", err)
	}
}

func TestASchedulerDoesNotStartWithoutItsPlugin(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	file := filepath.Join(t.TempDir(), "scheduler.conf")
	if err := os.WriteFile(file, []byte(scheduler.DefaultSchedulerConf), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ file, configMap, want string }{
		"no file":                         {"", "", "--scheduler-conf names no file"},
		"a file that is not there":        {file + ".none", "", "no such file"},
		"a file without the plugin":       {file, "", "plugin deviceshare is in none of them"},
		"a ConfigMap without a namespace": {file, "config", `want namespace/name, got "config"`},
		"a ConfigMap with too many parts": {file, "a/b/c", `want namespace/name, got "a/b/c"`},
		"a ConfigMap with an empty name":  {file, "a/", `want namespace/name, got "a/"`},
		"a ConfigMap with no namespace":   {file, "/b", `want namespace/name, got "/b"`},
	} {
		t.Run(name, func(t *testing.T) {
			volcano := &options.ServerOption{SchedulerConf: c.file}
			if _, err := guardConfiguration(volcano, c.configMap, make(told, 1)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
