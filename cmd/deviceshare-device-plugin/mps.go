// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/metrics"
	"deviceshare/sharing"
	"deviceshare/sharing/factory/nodefactory"
	"deviceshare/sharing/mps/mpsnode"
	"deviceshare/sharing/timeslicing/timeslicingnode"
)

// mps is what mode mps needs. Without the control program the mode is not served,
// and devices in it are published as unusable with that reason.
func mps(o *options, driver driver.Driver, restarted func(mpsnode.Restart)) nodefactory.MPS {
	program, err := mpsnode.FindProgram(o.mpsControl, o.driverSeen())
	if err != nil {
		klog.InfoS("mode mps is not served (--mps-control)", "why", err)
		return nodefactory.MPS{}
	}
	program.Launcher = strings.Fields(o.mpsLauncher)
	return nodefactory.MPS{
		Control: program, Hardware: driver, Partitions: o.mpsCompute == "partition" && knowsPartitions(program),
		Space: mpsnode.Tmpfs{}, Shm: sharing.Bytes(o.mpsShm.Value()), Directories: o.mpsRoot, MultiUser: o.mpsUsers == "any", Restarted: restarted,
	}
}

// knowsPartitions asks the control program. Where it knows none, compute is held by
// percentages, and that is told.
func knowsPartitions(program mpsnode.Program) bool {
	known, err := program.KnowsPartitions(context.Background())
	if !known {
		klog.ErrorS(err, "the MPS control program knows no static partitions; mode mps caps compute by percentages instead (--mps-compute)")
	}
	return known
}

// timeSlice is what sets the slice of devices in mode time-slicing, nil when it is
// left alone.
func timeSlice(o *options) (timeslicingnode.Tool, timeslicingnode.Slice, error) {
	if o.timeSlice == "" {
		return nil, 0, nil
	}
	step, err := timeslicingnode.ParseSlice(o.timeSlice)
	if err != nil {
		return nil, 0, fmt.Errorf("--time-slice: %w", err)
	}
	tool, err := timeslicingnode.FindSMI(o.driverSeen())
	if err != nil {
		return nil, 0, fmt.Errorf("--time-slice=%s: %w", o.timeSlice, err)
	}
	return tool, step, nil
}

// driverSeen is the root of the driver's installation as this process sees it.
func (o *options) driverSeen() string {
	if o.seenRoot != "" {
		return o.seenRoot
	}
	return o.driverRoot
}

// supervise runs the preparers that look after processes of theirs.
func (p *plugin) supervise(ctx context.Context, group *errgroup.Group) {
	for _, x := range p.preparers {
		if s, ok := x.(interface{ Run(context.Context) error }); ok {
			group.Go(func() error { return s.Run(ctx) })
		}
	}
}

// daemonDied tells the node, and every pod that was a client, that an MPS control
// daemon died. It is called for several devices at once. It must not wait for a preparer, which may be the caller.
func (p *plugin) daemonDied(r mpsnode.Restart) {
	p.metrics.Problem(metrics.ProblemMPS)
	what := "it runs again; processes that used it get CUDA errors until they are started again"
	if r.Err != nil {
		what = "it does not start again: " + r.Err.Error()
	}
	text := fmt.Sprintf("the MPS control daemon of device %s died: %s", r.Device, what)
	klog.ErrorS(r.Err, "MPS control daemon died", "device", r.Device)
	p.report.recorder.Event(p.report.node, corev1.EventTypeWarning, "MPSDaemonDied", short(text))
	told := map[sharing.Owner]bool{}
	for _, record := range p.store.All() {
		if record.Mode != sharing.MPS || told[record.Owner] {
			continue
		}
		for _, d := range record.Devices {
			if pod, live := p.pods.Pod(record.Owner); live && d.Device == r.Device {
				p.report.recorder.Event(pod, corev1.EventTypeWarning, "MPSDaemonDied", short(text))
				told[record.Owner] = true
			}
		}
	}
}
