// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"deviceshare/e2e/sandbox"
)

// flags are the options of a sandbox as flags. The same flags are handed on to the background
// process.
type flags struct {
	opts     sandbox.Options
	topology string
}

func (f *flags) add(set *pflag.FlagSet) {
	set.StringVar(&f.opts.Repo, "repo", "", "root of the repository (default: the one around the working directory)")
	set.StringVar(&f.opts.State, "state", "", "directory for everything the cluster writes (default: .sandbox/state in the repository)")
	set.StringVar(&f.topology, "topology", "", "file that describes the fake GPUs (default: two A100)")
	set.IntVar(&f.opts.SimulatedNodes, "simulated-nodes", 0, "number of nodes without a kubelet")
	set.BoolVar(&f.opts.NoKubelet, "no-kubelet", false, "no real node, only simulated ones")
	set.BoolVar(&f.opts.NoGPU, "no-gpu", false, "no fake GPUs and no device plugin")
	set.BoolVar(&f.opts.StockScheduler, "stock-scheduler", false, "run Volcano's own scheduler instead of this project's")
	set.BoolVar(&f.opts.Audit, "audit", false, "log requests about pods, bindings and nodes to logs/audit.log")
	set.BoolVar(&f.opts.Race, "race", false, "build this project's binaries with the race detector")
}

// options reads what the flags name and fills in the defaults.
func (f *flags) options() (sandbox.Options, error) {
	if f.topology != "" {
		text, err := os.ReadFile(f.topology)
		if err != nil {
			return f.opts, fmt.Errorf("read topology: %w", err)
		}
		f.opts.Topology = string(text)
	}
	f.opts.Installed = !f.opts.NeedsProcesses()
	return f.opts.Defaults()
}

func newBuild() *cobra.Command {
	var f flags
	cmd := &cobra.Command{Use: "build", Short: "Build everything the sandbox runs, and start nothing", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			o.Progress = sandbox.TimedProgress(os.Stdout)
			return sandbox.Build(cmd.Context(), o)
		}}
	f.add(cmd.Flags())
	return cmd
}

func newUp() *cobra.Command {
	var f flags
	cmd := &cobra.Command{Use: "up", Short: "Build, start in the background, and print how to reach the cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			return up(cmd.Context(), o, changed(cmd.Flags()))
		}}
	f.add(cmd.Flags())
	return cmd
}

// changed renders the flags that were set.
func changed(set *pflag.FlagSet) []string {
	var out []string
	set.Visit(func(f *pflag.Flag) { out = append(out, "--"+f.Name+"="+f.Value.String()) })
	return out
}

// up builds in the foreground, then starts a background process that owns the cluster, and waits
// until it is ready.
func up(ctx context.Context, o sandbox.Options, args []string) error {
	o.Progress = sandbox.TimedProgress(os.Stdout)
	if err := sandbox.Build(ctx, o); err != nil {
		return err
	}
	server, err := startServer(o, args)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	if err := follow(ctx, o, ended); err != nil {
		_ = server.Process.Signal(syscall.SIGTERM)
		if errors.Is(err, context.Canceled) {
			<-ended
		}
		return err
	}
	fmt.Printf("\nThe cluster runs. To use it and to stop it:\n\n  export KUBECONFIG=%s\n  make sandbox-down\n\nLogs are in %s\n",
		filepath.Join(o.State, "kubeconfig"), filepath.Join(o.State, "logs"))
	return nil
}

// serverLog is where the background process writes its progress.
func serverLog(o sandbox.Options) string { return o.State + ".log" }

// startServer runs this program again, in a session of its own, so that it outlives the terminal.
func startServer(o sandbox.Options, args []string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the background process: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(o.State), 0o755); err != nil {
		return nil, fmt.Errorf("start the background process: %w", err)
	}
	log, err := os.Create(serverLog(o))
	if err != nil {
		return nil, fmt.Errorf("start the background process: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(self, append([]string{"serve", "--repo=" + o.Repo}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the background process: %w", err)
	}
	return cmd, nil
}

// readyLine ends the progress of a background process that succeeded.
const readyLine = "sandbox is ready"

// follow copies the background process's progress until it is ready or ends.
func follow(ctx context.Context, o sandbox.Options, ended <-chan error) error {
	shown := 0
	show := func() bool {
		text, _ := os.ReadFile(serverLog(o))
		complete := string(text[:strings.LastIndexByte(string(text), '\n')+1])
		fresh := complete[shown:]
		shown = len(complete)
		before, _, ready := strings.Cut(fresh, readyLine)
		fmt.Print(before)
		return ready
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ended:
			show()
			return errors.New("the cluster did not start; see above")
		case <-tick.C:
			if show() {
				return nil
			}
		}
	}
}
