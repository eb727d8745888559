// SPDX-License-Identifier: Apache-2.0

// Command gpu measures libvgpu.so on a machine with an NVIDIA GPU. It prints one table: what
// was measured, the criterion, and whether it was met. It changes no setting of the card: no
// mode, no clock, no MIG, no MPS daemon. An experiment that needs something the machine does
// not have is skipped, and the table says why. It is built in advance and needs no compiler
// on the machine with the card:
//
//	make gpu-build    # where Go is; .sandbox/gpu is then complete
//	make gpu          # on the machine with the GPU, as root
//
// With -fake it runs on the fake driver of e2e/fakegpu. That exercises the logic; the figures
// then say nothing about a card.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"deviceshare/e2e/laboratory/gpu/tenant"
	"deviceshare/e2e/laboratory/gpu/verdict"
)

// options are the command line.
type options struct {
	dir, json, other, numbers string
	fake                      bool
	limit                     time.Duration
}

func main() {
	tenant.Enter()
	var o options
	flag.StringVar(&o.dir, "dir", ".sandbox/gpu", "directory with libvgpu.so, cudaload, cudaclient and deviceshare-device-plugin")
	flag.StringVar(&o.numbers, "experiments", "", "which to run, as 1,7-9; all when empty")
	flag.StringVar(&o.json, "json", "", "write the table as JSON to this file as well")
	flag.StringVar(&o.other, "hamicore", "", "HAMi-core's libvgpu.so, for experiment 13")
	flag.BoolVar(&o.fake, "fake", false, "run on the fake driver of e2e/fakegpu; run from the top of the source tree")
	flag.DurationVar(&o.limit, "limit", 9*time.Minute, "time for everything; what is left over then is skipped")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	missed, err := suite(ctx, o)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "gpu:", err)
		os.Exit(2)
	case missed > 0:
		os.Exit(1)
	}
}

// suite runs what is selected and prints the table; how many rows missed.
func suite(ctx context.Context, o options) (int, error) {
	chosen, err := choose(experiments(), o.numbers)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	b, err := newBench(ctx, o)
	if err != nil {
		return 0, err
	}
	defer b.close()
	about := b.describe(ctx)
	for _, line := range about.lines() {
		fmt.Println(line)
	}
	for _, e := range chosen {
		b.perform(ctx, e)
	}
	about.Clocks = b.clocksSeen(ctx)
	about.Seconds = time.Since(b.began).Seconds()
	rows := b.table()
	fmt.Print(markdown(about, rows))
	if o.json != "" {
		if err := writeJSON(o.json, about, rows); err != nil {
			return 0, err
		}
	}
	missed := 0
	for _, r := range rows {
		if r.Result == verdict.Missed {
			missed++
		}
	}
	return missed, nil
}
