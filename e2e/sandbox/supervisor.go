// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// supervisor keeps named components running and writes their state to a file.
type supervisor struct {
	thread     *thread
	restart    bool
	statusFile string

	mu    sync.Mutex
	procs []*process // in start order

	writing sync.Mutex
	pending sync.WaitGroup // writes of the status file under way
}

// newSupervisor starts its components from t.
func newSupervisor(t *thread, statusFile string, restart bool) *supervisor {
	return &supervisor{thread: t, restart: restart, statusFile: statusFile}
}

// add registers a component and starts it.
func (s *supervisor) add(c component) error {
	return s.register(c).start(context.Background())
}

// register makes a component known, which has to be started by its name.
func (s *supervisor) register(c component) *process {
	if c.grace == 0 {
		c.grace = 5 * time.Second
	}
	p := &process{spec: c, thread: s.thread, restart: s.restart, changed: s.noteChange}
	s.mu.Lock()
	s.procs = append(s.procs, p)
	s.mu.Unlock()
	return p
}

// find returns a component by name; the error lists the names there are.
func (s *supervisor) find(name string) (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, p := range s.procs {
		if p.spec.name == name {
			return p, nil
		}
		names = append(names, p.spec.name)
	}
	return nil, fmt.Errorf("no component %q in this sandbox, it has %s", name, strings.Join(names, ", "))
}

// status returns every component in start order.
func (s *supervisor) status() []ComponentStatus {
	s.mu.Lock()
	procs := slices.Clone(s.procs)
	s.mu.Unlock()
	out := make([]ComponentStatus, 0, len(procs))
	for _, p := range procs {
		out = append(out, p.status())
	}
	return out
}

// noteChange has the status file written. It does not wait, because components report changes under
// their lock.
func (s *supervisor) noteChange() {
	s.pending.Add(1)
	go func() {
		defer s.pending.Done()
		s.writeStatus()
	}()
}

// settle waits until the status file is written; it is for when every component has been stopped.
func (s *supervisor) settle() { s.pending.Wait() }

// writeStatus replaces the status file, so that another process can read who runs.
func (s *supervisor) writeStatus() {
	s.writing.Lock()
	defer s.writing.Unlock()
	text, err := json.MarshalIndent(s.status(), "", "  ")
	if err != nil {
		return
	}
	// Nothing depends on the file but the status command, which says so when it is missing.
	tmp := s.statusFile + ".new"
	if os.WriteFile(tmp, append(text, '\n'), 0o644) == nil {
		_ = os.Rename(tmp, s.statusFile)
	}
}

// stop ends the named components at the same time; those that were never added are skipped.
func (s *supervisor) stop(names ...string) {
	var wg sync.WaitGroup
	for _, name := range names {
		p, err := s.find(name)
		if err != nil {
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			_ = p.stop(context.Background())
		}()
	}
	wg.Wait()
}

// How much of a log an error shows: so many lines, and so many bytes of each.
const (
	tailLines = 20
	tailWidth = 400
)

// logTail is the end of a log file for an error message, indented, with the file's name.
func logTail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("  (its log cannot be read: %v)", err)
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	for i, line := range lines {
		lines[i] = line[:min(len(line), tailWidth)]
	}
	return fmt.Sprintf("  end of %s:\n    %s", path, strings.Join(lines, "\n    "))
}
