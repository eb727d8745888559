// SPDX-License-Identifier: Apache-2.0

package schedulerconf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
)

// Options are what a Guard needs.
type Options struct {
	// Path is the file that people write, which may be a link that is put elsewhere, as in the
	// volume of a ConfigMap.
	Path  string
	Known Known
	// Tell is told of each mistake while an earlier text stays in force. May be nil.
	Tell func(mistake string)
}

// Guard gives Volcano a copy of the configuration file that it can go by. Run and Collect may be
// called from different goroutines.
type Guard struct {
	options Options
	folder  string
	// read is the text that was read last, and mistakes what was said of it.
	read  string
	valid prometheus.Gauge
}

// copyName is the name of the copy, below the folder copies.
const (
	copies   = "copy"
	copyName = "volcano-scheduler.conf"
)

// New reads the file and makes the copy, in a new folder of the system's temporary ones. An error
// lists every mistake of the text.
func New(o Options) (*Guard, error) {
	g := &Guard{options: o, valid: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "deviceshare_scheduler_config_valid",
		Help: "1 if the scheduler goes by the text of its configuration file, 0 if that has mistakes and an earlier one is in force.",
	})}
	text, err := os.ReadFile(o.Path)
	if err != nil {
		return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	r := Read(string(text), o.Known)
	if len(r.Mistakes) > 0 {
		return nil, fmt.Errorf("the scheduler's configuration %s has mistakes, correct them in its ConfigMap: %s", o.Path, strings.Join(r.Mistakes, "; "))
	}
	if g.folder, err = makeFolder(); err != nil {
		return nil, fmt.Errorf("copy the scheduler's configuration: %w", err)
	}
	g.read = string(text)
	return g, g.handOn(r)
}

// makeFolder makes a folder for the copy. A container that starts again has the number that it had
// before, so that nothing is left of its earlier lives.
func makeFolder() (string, error) {
	own := fmt.Sprintf("deviceshare-scheduler-conf-%d-", os.Getpid())
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), own+"*")) // fails only for a wrong pattern
	for _, folder := range old {
		_ = os.RemoveAll(folder) // what cannot be removed is in nobody's way
	}
	folder, err := os.MkdirTemp("", own)
	if err != nil {
		return "", err
	}
	return folder, os.Mkdir(filepath.Join(folder, copies), 0o700)
}

// Path is the file for Volcano.
func (g *Guard) Path() string { return filepath.Join(g.folder, copies, copyName) }

// Close removes the copy. Volcano must not read it any more.
func (g *Guard) Close() error { return os.RemoveAll(g.folder) }

// Run follows the file until ctx ends.
func (g *Guard) Run(ctx context.Context) (err error) {
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the scheduler's configuration: %w", err)
	}
	defer func() { err = errors.Join(err, watch.Close()) }()
	if err := watch.Add(filepath.Dir(g.options.Path)); err != nil {
		return fmt.Errorf("watch the scheduler's configuration: %w", err)
	}
	g.readFile() // it may have changed before it was watched
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-watch.Events:
			g.readFile()
		case err := <-watch.Errors:
			klog.ErrorS(err, "Watching the scheduler's configuration", "file", g.options.Path)
			g.readFile() // events may have been lost
		}
	}
}

// readFile reads the file, and has Volcano go by it if it can.
func (g *Guard) readFile() {
	text, err := os.ReadFile(g.options.Path)
	if err != nil {
		klog.ErrorS(err, "The scheduler's configuration cannot be read, what was in force stays so", "file", g.options.Path)
		g.valid.Set(0)
		g.read = ""
		return
	}
	if string(text) == g.read {
		return
	}
	g.read = string(text)
	r := Read(g.read, g.options.Known)
	if len(r.Mistakes) == 0 {
		if err := g.handOn(r); err != nil {
			klog.ErrorS(err, "What was in force stays so")
			g.valid.Set(0)
			g.read = "" // tried again at the next event
		}
		return
	}
	g.valid.Set(0)
	for _, m := range r.Mistakes {
		klog.ErrorS(nil, "Mistake in the scheduler's configuration, what was in force stays so", "file", g.options.Path, "mistake", m)
		if g.options.Tell != nil {
			g.options.Tell(m)
		}
	}
}

// handOn puts a good text where Volcano reads it, at once and whole.
func (g *Guard) handOn(r Reading) error {
	for _, note := range r.Notes {
		klog.InfoS("The scheduler's configuration", "file", g.options.Path, "note", note)
	}
	fresh := filepath.Join(g.folder, copyName)
	err := os.WriteFile(fresh, []byte(r.Text), 0o600)
	if err == nil {
		err = os.Rename(fresh, g.Path())
	}
	if err != nil {
		return fmt.Errorf("copy the scheduler's configuration: %w", err)
	}
	klog.InfoS("The scheduler's configuration is in force", "file", g.options.Path)
	g.valid.Set(1)
	return nil
}

// Describe and Collect implement prometheus.Collector.
func (g *Guard) Describe(out chan<- *prometheus.Desc) { g.valid.Describe(out) }

// Collect sends the metric.
func (g *Guard) Collect(out chan<- prometheus.Metric) { g.valid.Collect(out) }
