// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"deviceshare/e2e/report"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
)

// sharing puts three pods on one device and shows what each sees.
func (s *story) sharing(ctx context.Context) error {
	asks := map[string]workload.Ask{
		"train-a": {Number: 1, Memory: 24576, Cores: 40},
		"train-b": {Number: 1, Memory: 16384, Cores: 30},
		"serve":   {Number: 1, Memory: 8192, Cores: 20},
	}
	names := []string{"train-a", "train-b", "serve"}
	for _, name := range names {
		if err := s.run(ctx, pod(name).App("main", asks[name], "info", "env", "alloc", workload.MiB(asks[name].Memory/2), "expect", "ok", "forever")); err != nil {
			return err
		}
	}
	if err := s.draw(ctx); err != nil {
		return err
	}
	s.say("\n   what each container sees of its device (limit in MiB -> total the driver reports):")
	device := ""
	for _, name := range names {
		log, err := s.user.WaitLog(ctx, name, "main", "forever")
		if err != nil {
			return err
		}
		uuid, total := report.Field(log, "info index=", "uuid"), report.Field(log, "info index=", "total")
		s.say("     %-8s %6d MiB -> %s bytes on %s", name, asks[name].Memory, total, uuid)
		if want := fmt.Sprint(asks[name].Memory << 20); total != want {
			return fmt.Errorf("%s sees %s bytes, its limit is %s", name, total, want)
		}
		if device != "" && device != uuid {
			return fmt.Errorf("%s is on %s, the pods before it on %s", name, uuid, device)
		}
		device = uuid
	}
	return nil
}

// greed lets one container ask for more than its limit.
func (s *story) greed(ctx context.Context) error {
	greedy := pod("greedy").App("main", workload.Ask{Number: 1, Memory: 4096, Cores: 10},
		"alloc", "4000", "expect", "ok", "alloc", "200", "expect", "oom", "free", "alloc", "4000", "expect", "ok", "forever")
	neighbour := pod("neighbour").App("main", workload.Ask{Number: 1, Memory: 4096},
		"alloc", "2000", "expect", "ok", "hold", "3", "alloc", "1000", "expect", "ok", "launch", "5", "forever")
	if err := s.run(ctx, greedy, neighbour); err != nil {
		return err
	}
	for _, name := range []string{"greedy", "neighbour"} {
		log, err := s.user.WaitLog(ctx, name, "main", "forever")
		if err != nil {
			return err
		}
		s.say("\n   %s:", name)
		s.quote(log)
		if refused := strings.Contains(log, "CUDA_ERROR_OUT_OF_MEMORY"); refused != (name == "greedy") {
			return fmt.Errorf("%s: refused memory: %v", name, refused)
		}
	}
	return s.user.Delete(ctx, "greedy", "neighbour")
}

// compute lets two pods keep one device busy at 30 and at 70 percent, and then the
// first alone, which borrows what nobody uses.
func (s *story) compute(ctx context.Context) error {
	shares := map[string]int64{"at-30": 30, "at-70": 70}
	got, err := s.busy(ctx, shares)
	if err != nil {
		return err
	}
	for name, share := range shares {
		// A busy machine leaves a container less than its share; never more while
		// the other works, which both do in the middle.
		if got[name] > float64(share)/100+0.04 {
			return fmt.Errorf("%s got %.3f of the device's time", name, got[name])
		}
	}
	got, err = s.busy(ctx, map[string]int64{"alone-at-30": 30})
	if err != nil {
		return err
	}
	if got["alone-at-30"] < 0.4 { // on a busy machine; not borrowing would be 0.3
		return fmt.Errorf("alone-at-30 got %.3f of a device that nobody else uses", got["alone-at-30"])
	}
	return nil
}

// busy runs pods that want all of a device at the same time; what fraction of its
// time each got.
func (s *story) busy(ctx context.Context, shares map[string]int64) (map[string]float64, error) {
	got, names := map[string]float64{}, slices.Sorted(maps.Keys(shares))
	for _, name := range names {
		p := pod(name).App("main", workload.Ask{Number: 1, Memory: 2048, Cores: shares[name]},
			"alloc", "100", "hold", "3", "busy", "8", "1", "processes", "forever")
		if err := s.user.Create(ctx, p.Build()); err != nil {
			return nil, err
		}
	}
	s.say("")
	for _, name := range names {
		if _, err := s.user.WaitRunning(ctx, name); err != nil {
			return nil, err
		}
		log, err := s.user.WaitLog(ctx, name, "main", "forever")
		if err != nil {
			return nil, err
		}
		s.say("   %s:", name)
		s.quote(log)
		fraction, err := strconv.ParseFloat(report.Field(log, "busy ", "middle"), 64)
		if err != nil || fraction <= 0 {
			return nil, fmt.Errorf("%s reports no fraction of the device's time (%v)", name, err)
		}
		got[name] = fraction
		if n := strings.Count(log, "\nprocess uuid="); n != 1 {
			return nil, fmt.Errorf("%s sees %d processes on its device, want its own", name, n)
		}
	}
	return got, s.user.Delete(ctx, names...)
}

// waiting fills the devices, and then makes room.
func (s *story) waiting(ctx context.Context) error {
	if err := s.run(ctx,
		pod("filler-1").App("main", workload.Ask{Number: 1, Memory: 60000}, "forever"),
		pod("filler-2").App("main", workload.Ask{Number: 1, Memory: 60000}, "forever")); err != nil {
		return err
	}
	if err := s.user.Create(ctx, pod("late").App("main", workload.Ask{Number: 1, Memory: 40000}, "forever").Build()); err != nil {
		return err
	}
	text, err := s.user.WaitEvent(ctx, "late", "0/3 devices", "3 short of free memory (NotEnoughMemory)")
	if err != nil {
		return err
	}
	if err := s.draw(ctx); err != nil {
		return err
	}
	s.say("\n   pod late asks for 40000 MiB and waits; kubectl describe pod late shows:")
	s.quote(text)
	s.say("\n   filler-2 is deleted:")
	if err := s.user.Delete(ctx, "filler-2"); err != nil {
		return err
	}
	if _, err := s.user.WaitRunning(ctx, "late"); err != nil {
		return err
	}
	if err := s.draw(ctx); err != nil {
		return err
	}
	return s.user.Delete(ctx, "filler-1", "late")
}

// policies places two small pods that choose differently.
func (s *story) policies(ctx context.Context) error {
	small := workload.Ask{Number: 1, Memory: 2048}
	var devices []sharing.DeviceID
	for _, policy := range []string{"binpack", "spread"} {
		if err := s.run(ctx, pod("with-"+policy).App("main", small, "forever").Annotate("volcano.sh/vgpu-policy", policy)); err != nil {
			return err
		}
		p, err := s.user.Get(ctx, "with-"+policy)
		if err != nil {
			return err
		}
		placement, err := user.Placement(p)
		if err != nil {
			return err
		}
		devices = append(devices, placement.Containers[0].Shares[0].Device)
	}
	if err := s.draw(ctx); err != nil {
		return err
	}
	if devices[0] == devices[1] {
		return fmt.Errorf("both policies chose %s", devices[0])
	}
	return s.user.Delete(ctx, "with-binpack", "with-spread")
}

// whole shows a container that has a device to itself.
func (s *story) whole(ctx context.Context) error {
	p := pod("whole").App("main", workload.Ask{Number: 1}, "info", "env", "alloc", "80000", "expect", "ok", "forever")
	if err := s.run(ctx, p); err != nil {
		return err
	}
	log, err := s.user.WaitLog(ctx, "whole", "main", "forever")
	if err != nil {
		return err
	}
	if err := s.draw(ctx); err != nil {
		return err
	}
	s.say("\n   whole:")
	s.quote(log)
	if !strings.Contains(log, "libvgpu=no") || strings.Contains(log, "vgpu-limits") {
		return fmt.Errorf("the container with a whole device is intercepted")
	}
	return s.user.Delete(ctx, "whole")
}
