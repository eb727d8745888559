// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/modes/mps/keeper"
)

// duty is something that a node's keeper holds for the device plugin, which may end and start
// again meanwhile. Duties share a process and nothing else: none may start other processes
// but the one that starts MPS daemons.
type duty interface {
	// Run works until ctx ends and what it holds is no longer needed. After an error it is
	// started again.
	Run(ctx context.Context) error
}

// duties are those of the keeper on this node, by their names in the log. Those that last are
// needed for as long as another one holds something: they are told to end after the others.
type duties struct{ others, last map[string]duty }

func newDuties(m *modeFlags, places *kubelet.Places, driverRoot string) duties {
	last := map[string]duty{}
	if places.Keeper != "" {
		last["slots"] = places.NewProxy()
	}
	return duties{others: map[string]duty{
		"mps": keeper.NewServer(keeper.Config{
			Socket: m.MPSKeeper, Directories: filepath.Clean(m.MPSRoot), Control: m.MPSControl, Root: driverRoot,
			Log: slog.New(logr.ToSlogHandler(klog.Background())),
		}),
	}, last: last}
}

// newKeep is the subcommand that runs in a pod of its own, which outlives updates of the
// device plugin.
func newKeep(m *modeFlags, base *cdi.Options, places *kubelet.Places) *cobra.Command {
	return &cobra.Command{
		Use:   "keep",
		Short: "Hold on this node what must not end with the device plugin: the MPS daemons and, with --keeper-dir, the registration with the kubelet",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			wrong := slices.Concat(m.findMistakes(), base.Check(), places.Check())
			if m.MPSKeeper == "" {
				wrong = append(wrong, errors.New("--mps-keeper-socket is empty: give the socket that the device plugin is given"))
			}
			if err := errors.Join(wrong...); err != nil {
				return err
			}
			runDuties(c.Context(), newDuties(m, places, base.Seen()))
			return nil
		},
	}
}

// runDuties carries out duties until ctx ends and each has come to its end.
func runDuties(ctx context.Context, d duties) {
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	last := carryOut(lasting, d.last)
	carryOut(ctx, d.others).Wait()
	<-ctx.Done()
	end()
	last.Wait()
}

// carryOut begins duties. One that fails does not end the others.
func carryOut(ctx context.Context, duties map[string]duty) *sync.WaitGroup {
	working := &sync.WaitGroup{}
	for name, d := range duties {
		working.Go(func() {
			pause := wait.Backoff{Duration: time.Second, Factor: 2, Cap: 30 * time.Second, Steps: math.MaxInt}
			for {
				err := d.Run(ctx)
				if err == nil {
					return
				}
				klog.ErrorS(err, "a duty failed and is begun again", "duty", name)
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause.Step()):
				}
			}
		})
	}
	return working
}
