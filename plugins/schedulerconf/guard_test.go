// SPDX-License-Identifier: Apache-2.0

package schedulerconf_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"deviceshare/plugins/schedulerconf"
)

const (
	quiet   = "actions: \"enqueue, allocate, backfill\"\ntiers:\n- plugins:\n  - name: deviceshare\n"
	evicts  = "actions: \"enqueue, allocate, preempt, backfill\"\ntiers:\n- plugins:\n  - name: deviceshare\n"
	wrong   = "actions: \"enqueue, allocate, gangPreempt, backfill\"\ntiers:\n- plugins:\n  - name: deviceshare\n"
	without = "actions: \"enqueue, allocate, backfill\"\ntiers:\n- plugins:\n  - name: predicates\n"
)

// volume is a folder as the kubelet makes it of a ConfigMap: the file is a link into a folder that
// is a link, which is put elsewhere by an edit.
type volume struct {
	t      *testing.T
	folder string
	edits  int
}

func newVolume(t *testing.T, text string) *volume {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	v := &volume{t: t, folder: t.TempDir()}
	v.edit(text)
	if err := os.Symlink("..data/volcano-scheduler.conf", v.path()); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *volume) path() string { return filepath.Join(v.folder, "volcano-scheduler.conf") }

func (v *volume) edit(text string) {
	v.t.Helper()
	v.edits++
	data := filepath.Join(v.folder, "..data-"+strings.Repeat("i", v.edits))
	if err := os.Mkdir(data, 0o755); err != nil {
		v.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "volcano-scheduler.conf"), []byte(text), 0o644); err != nil {
		v.t.Fatal(err)
	}
	fresh := filepath.Join(v.folder, "..data_tmp")
	if err := os.Symlink(filepath.Base(data), fresh); err != nil {
		v.t.Fatal(err)
	}
	if err := os.Rename(fresh, filepath.Join(v.folder, "..data")); err != nil {
		v.t.Fatal(err)
	}
}

// told collects mistakes.
type told struct {
	mu   sync.Mutex
	said []string
}

func (r *told) add(mistake string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, mistake)
}

func (r *told) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.said, "\n")
}

// runs starts a guard of a volume.
func runs(t *testing.T, v *volume) (*schedulerconf.Guard, *told) {
	t.Helper()
	said := &told{}
	g, err := schedulerconf.New(schedulerconf.Options{Path: v.path(), Known: known(), Tell: said.add})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- g.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return g, said
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// isValid reports what the metric says.
func isValid(t *testing.T, g *schedulerconf.Guard) bool {
	t.Helper()
	r := prometheus.NewRegistry()
	if err := r.Register(g); err != nil {
		t.Fatal(err)
	}
	all, err := r.Gather()
	if err != nil || len(all) != 1 || all[0].GetName() != "deviceshare_scheduler_config_valid" {
		t.Fatalf("gathered %v: %v", all, err)
	}
	return all[0].Metric[0].Gauge.GetValue() == 1
}

func inForce(t *testing.T, g *schedulerconf.Guard) string {
	t.Helper()
	text, err := os.ReadFile(g.Path())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAGoodEditIsHandedOnAndAWrongOneIsNot(t *testing.T) {
	v := newVolume(t, quiet)
	g, said := runs(t, v)
	if got := inForce(t, g); got != quiet || !isValid(t, g) {
		t.Fatalf("in force: %s, valid %v", got, isValid(t, g))
	}
	v.edit(evicts)
	await(t, "the edit is in force", func() bool { return inForce(t, g) == evicts })
	v.edit(wrong)
	await(t, "the mistake is told", func() bool { return strings.Contains(said.all(), "gangPreempt is of a later version") })
	if inForce(t, g) != evicts || isValid(t, g) {
		t.Errorf("in force: %s, valid %v", inForce(t, g), isValid(t, g))
	}
	v.edit(without)
	await(t, "the next mistake is told", func() bool { return strings.Contains(said.all(), "plugin deviceshare is in none of them") })
	v.edit(quiet)
	await(t, "what is right again is in force", func() bool { return inForce(t, g) == quiet && isValid(t, g) })
	if n := strings.Count(said.all(), "\n") + 1; n != 2 {
		t.Errorf("%d mistakes were told:\n%s", n, said.all())
	}
}

func TestAFileThatIsGoneForAWhileChangesNothing(t *testing.T) {
	v := newVolume(t, quiet)
	g, _ := runs(t, v)
	data := filepath.Join(v.folder, "..data")
	if err := os.Remove(data); err != nil {
		t.Fatal(err)
	}
	await(t, "that is noticed", func() bool { return !isValid(t, g) })
	if inForce(t, g) != quiet {
		t.Error("something else is in force")
	}
	v.edit(quiet)
	await(t, "the same text is in force again", func() bool { return isValid(t, g) })
}

func TestAProgramDoesNotStartWithAConfigurationThatHasMistakes(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an action that is not known": {wrong, "gangPreempt"},
		"no plugin deviceshare":       {without, "plugin deviceshare is in none of them"},
		"nothing at all":              {"", "the text is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVolume(t, c.text)
			_, err := schedulerconf.New(schedulerconf.Options{Path: v.path(), Known: known()})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "correct them in its ConfigMap") {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := schedulerconf.New(schedulerconf.Options{Path: "none.conf", Known: known()}); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestNothingIsLeftOfEarlierLives(t *testing.T) {
	v := newVolume(t, quiet)
	for range 3 {
		if _, err := schedulerconf.New(schedulerconf.Options{Path: v.path(), Known: known()}); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}
