// SPDX-License-Identifier: Apache-2.0

// Command scale measures how many pods per second clusters of several sizes place, with and without
// devices: see package scale.
//
//	scale --nodes 200,1000,5000
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"deviceshare/e2e/laboratory/scale"
	"deviceshare/e2e/sandbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var o scale.Options
	bare, jobs, gangs := 200, 200, 1000
	room, rooms := "", false
	c := &cobra.Command{
		Use: "scale", Short: "Measure how many pods per second a cluster of simulated nodes places, with and without devices",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, w := range []scale.Workload{{Name: scale.Bare, Pods: bare}, {Name: scale.Jobs, Pods: jobs}, {Name: scale.Gangs, Pods: gangs}} {
				if w.Pods > 0 {
					o.Workloads = append(o.Workloads, w)
				}
			}
			o.Progress = sandbox.TimedProgress(os.Stdout)
			if rooms || room != "" {
				return makeRoom(c.Context(), o, room)
			}
			rows, err := scale.Run(c.Context(), o)
			show(rows)
			return err
		},
	}
	f := c.Flags()
	f.IntSliceVar(&o.Nodes, "nodes", []int{200, 1000, 5000}, "sizes of cluster")
	f.IntVar(&o.Turns, "turns", 3, "turns of each kind")
	f.IntVar(&bare, "bare", bare, "bare pods of a turn; 0 leaves them out")
	f.IntVar(&jobs, "jobs", jobs, "pods in jobs of 100; 0 leaves them out")
	f.IntVar(&gangs, "gangs", gangs, "pods in gangs of 1,000; 0 leaves them out")
	f.BoolVar(&rooms, "rooms", false, "measure instead how long it takes to make room, on clusters of the first size")
	f.StringVar(&room, "room", "", "the same for the cases whose names contain this text")
	f.StringVar(&o.Out, "out", ".sandbox/scale", "folder for the profiles of the scheduler's processor time")
	f.StringSliceVar(&o.SchedulerArgs, "scheduler-args", nil, "flags of the scheduler after the shipped ones")
	return c
}

// makeRoom prints the table of room that is made.
func makeRoom(ctx context.Context, o scale.Options, only string) error {
	rows, err := scale.Rooms(ctx, o, o.Nodes[0], only)
	fmt.Println("\n" + scale.RoomHead)
	for _, r := range rows {
		fmt.Println(r)
	}
	return err
}

// show prints the tables of docs/scale.md.
func show(rows []scale.Row) {
	fmt.Println("\n" + scale.Head)
	for _, r := range rows {
		fmt.Println(r)
	}
	fmt.Println("\n" + scale.HotHead)
	for _, r := range rows {
		fmt.Println(r.Hot())
	}
}
