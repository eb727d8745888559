// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// Server is a Prometheus that runs.
type Server struct {
	cmd    *exec.Cmd
	log    string
	exited chan struct{} // closed when the process has been reaped
	api    promv1.API
}

// Start starts a Prometheus with a configuration, whose paths are relative to the directory. It
// keeps its data there, and returns when the server answers.
func (t Tools) Start(ctx context.Context, dir, config string) (*Server, error) {
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write the configuration of Prometheus: %w", err)
	}
	address, err := freeAddress()
	if err != nil {
		return nil, fmt.Errorf("start Prometheus: %w", err)
	}
	s := &Server{log: filepath.Join(dir, "prometheus.log"), exited: make(chan struct{})}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, fmt.Errorf("start Prometheus: %w", err)
	}
	defer log.Close()
	s.cmd = exec.Command(t.Server, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start Prometheus: %w", err)
	}
	go func() {
		defer close(s.exited)
		_ = s.cmd.Wait() // how it ended is in its log
	}()
	client, err := api.NewClient(api.Config{Address: "http://" + address})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ask Prometheus at %s: %w", address, err), s.Stop())
	}
	s.api = promv1.NewAPI(client)
	for {
		_, err := s.api.Runtimeinfo(ctx)
		if err == nil {
			return s, nil
		}
		select {
		case <-s.exited:
			return nil, fmt.Errorf("start Prometheus: it ended: %s", s.Log())
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("start Prometheus: %w: %w", context.Cause(ctx), err), s.Stop())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// freeAddress is an address of this machine where nobody listens. It is none of 127.0.0.1, whose
// port could be a connection's when Prometheus starts.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.2:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Log is what the server has said so far.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Stop ends the server.
func (s *Server) Stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop Prometheus: %w", err)
	}
	select {
	case <-s.exited:
	case <-time.After(20 * time.Second):
		if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("kill Prometheus: %w", err)
		}
		<-s.exited
	}
	return nil
}

// Query returns the series that a query has now.
func (s *Server) Query(ctx context.Context, query string) (model.Vector, error) {
	got, _, err := s.api.Query(ctx, query, time.Now())
	if err != nil {
		return nil, fmt.Errorf("ask Prometheus for %s: %w", query, err)
	}
	v, ok := got.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("ask Prometheus for %s: a %s came, want a vector", query, got.Type())
	}
	return v, nil
}

// Healthy returns an error if a target cannot be scraped or a rule not be evaluated, or if nobody
// has tried yet. Targets and rules are how many there must be.
func (s *Server) Healthy(ctx context.Context, targets, rules int) error {
	scraped, err := s.api.Targets(ctx)
	if err != nil {
		return fmt.Errorf("ask Prometheus for its targets: %w", err)
	}
	if n := len(scraped.Active); n != targets {
		return fmt.Errorf("prometheus scrapes %d targets, want %d", n, targets)
	}
	for _, t := range scraped.Active {
		if t.Health != promv1.HealthGood {
			return fmt.Errorf("scrape %s: %s, %q", t.ScrapeURL, t.Health, t.LastError)
		}
	}
	found, err := s.api.Rules(ctx)
	if err != nil {
		return fmt.Errorf("ask Prometheus for its rules: %w", err)
	}
	n := 0
	for _, g := range found.Groups {
		for _, r := range g.Rules {
			n++
			if err := evaluated(r); err != nil {
				return err
			}
		}
	}
	if n != rules {
		return fmt.Errorf("prometheus has %d rules, want %d", n, rules)
	}
	return nil
}

// evaluated returns an error if a rule was not evaluated.
func evaluated(r any) error {
	switch r := r.(type) {
	case promv1.AlertingRule:
		if r.Health != promv1.RuleHealthGood {
			return fmt.Errorf("alert %s: %s, %q", r.Name, r.Health, r.LastError)
		}
	case promv1.RecordingRule:
		if r.Health != promv1.RuleHealthGood {
			return fmt.Errorf("recording rule %s: %s, %q", r.Name, r.Health, r.LastError)
		}
	default:
		return fmt.Errorf("a rule of an unknown kind: %T", r)
	}
	return nil
}
