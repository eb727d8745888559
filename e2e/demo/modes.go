// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"strings"

	"deviceshare/e2e/report"
	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// cutIndex is the device that is partitioned, the only one that is an H100.
const cutIndex = 2

// nodeConfig gives two of the node's devices other modes than the node's: mps to one, and mig to
// the H100.
func nodeConfig(shared int) string {
	return fmt.Sprintf(`{"nodeconfig":[{"name":%q,"devices":[
  {"index":%d,"mode":"mps"},
  {"index":%d,"mode":"mig"}]}]}`, sandbox.NodeName, shared, cutIndex)
}

// geometry allows the third device one partition as pod cut has it, and three with one
// slice of compute and the memory of two.
const geometry = `nvidia:
  knownMigGeometries:
    - models: ["H100 80GB"]
      allowedGeometries:
        - group: mixed
          geometries:
            - {name: 2g.20gb, memory: 20096, count: 1}
            - {name: 1g.20gb, memory: 20096, count: 3}
`

// modes changes the modes of two devices. One is in use, and changes when it is not.
func (s *story) modes(ctx context.Context) error {
	before, err := s.lives(ctx)
	if err != nil {
		return err
	}
	inUse, err := s.index(ctx, "train-a")
	if err != nil {
		return err
	}
	config := nodeConfig(inUse)
	if err := s.user.ConfigureNodes(ctx, config); err != nil {
		return err
	}
	s.quote(config)
	waits, err := s.nodeEvent(ctx, "GPUModeWaiting")
	if err != nil {
		return err
	}
	s.say("\n   the node says:")
	s.quote(waits)
	s.say("\n   train-a, train-b and serve end:")
	if err := s.user.Delete(ctx, "train-a", "train-b", "serve"); err != nil {
		return err
	}
	want := map[int]sharing.Mode{0: sharing.HAMiCore, 1: sharing.HAMiCore, inUse: sharing.MPS, cutIndex: sharing.MIG}
	err = s.until(ctx, "the devices to be in their modes", func(inv *sharing.Inventory) bool {
		for i := range inv.Devices {
			if d := &inv.Devices[i]; !d.Healthy || d.Mode != want[d.Index] {
				return false
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	for _, mode := range []sharing.Mode{sharing.HAMiCore, sharing.MPS} {
		name := "in-" + string(mode)
		p := pod(name).App("main", workload.Ask{Number: 1, Memory: 4096, Cores: 20}, "info", "forever").Annotate(wire.UserMode, string(mode)).AsUser(1000)
		if err := s.run(ctx, p); err != nil {
			return err
		}
		if got, err := s.share(ctx, name); err != nil || got.Mode != mode {
			return fmt.Errorf("pod %s is in mode %q: %w", name, got.Mode, err)
		}
	}
	if err := s.requireSameLives(ctx, before); err != nil {
		return err
	}
	return s.draw(ctx)
}

// partition lets a pod ask for memory, and shows the slices before and after.
func (s *story) partition(ctx context.Context) error {
	if err := s.slices(ctx); err != nil {
		return err
	}
	if err := s.run(ctx, inMIG("cut")); err != nil {
		return err
	}
	s.say("\n   cut asks for 15000 MiB and starts:")
	if err := s.slices(ctx); err != nil {
		return err
	}
	if err := s.hasPartition(ctx, "cut", "2g.20gb"); err != nil {
		return err
	}
	return s.draw(ctx)
}

// geometry edits the ConfigMap while a partition is in use.
func (s *story) geometry(ctx context.Context) error {
	held, err := s.user.WaitLog(ctx, "cut", "main", "forever")
	if err != nil {
		return err
	}
	inv, err := s.node(ctx, sandbox.NodeName)
	if err != nil {
		return err
	}
	before, err := s.lives(ctx)
	if err != nil {
		return err
	}
	if err := s.user.ConfigureDevices(ctx, geometry); err != nil {
		return err
	}
	s.quote(geometry)
	if err := s.until(ctx, "the geometry to be in force", func(now *sharing.Inventory) bool { return now.GeometryHash != inv.GeometryHash }); err != nil {
		return err
	}
	if err := s.run(ctx, inMIG("recut")); err != nil {
		return err
	}
	s.say("\n   recut asks for the same and starts:")
	if err := s.slices(ctx); err != nil {
		return err
	}
	if err := s.hasPartition(ctx, "recut", "1g.20gb"); err != nil {
		return err
	}
	show, err := s.cluster.FakeGPU(ctx, "show")
	if err != nil {
		return err
	}
	if uuid := report.Field(held, "info index=", "uuid"); !strings.Contains(show, uuid) {
		return fmt.Errorf("the partition %s of pod cut is gone", uuid)
	}
	return s.requireSameLives(ctx, before)
}

// anyMode leaves the choice to the score: the fullest device that fits with binpack,
// the emptiest with spread, whatever their modes.
func (s *story) anyMode(ctx context.Context) error {
	var chosen []sharing.Share
	for _, policy := range []string{"binpack", "spread"} {
		name := "any-" + policy
		p := pod(name).App("main", workload.Ask{Number: 1, Memory: 19000}, "info", "forever").Annotate(wire.UserPolicy, policy)
		if err := s.run(ctx, p); err != nil {
			return err
		}
		got, err := s.share(ctx, name)
		if err != nil {
			return err
		}
		chosen = append(chosen, got)
		s.say("   %-12s asks for 19000 MiB and names no mode; it is in mode %s", name, got.Mode)
	}
	if err := s.draw(ctx); err != nil {
		return err
	}
	if chosen[0].Mode != sharing.MIG || chosen[1].Mode == sharing.MIG {
		return fmt.Errorf("the fullest device is the one in mode mig, yet the modes are %s with binpack and %s with spread", chosen[0].Mode, chosen[1].Mode)
	}
	return nil
}

// secondChoice asks for what no partition has.
func (s *story) secondChoice(ctx context.Context) error {
	p := pod("choosy").App("main", workload.Ask{Number: 1, Memory: 24000}, "info", "env", "forever").Annotate(wire.UserMode, "mig,hami-core")
	if err := s.run(ctx, p); err != nil {
		return err
	}
	text, err := s.user.WaitEvent(ctx, "choosy", "hami-core", "choice 2", "mig")
	if err != nil {
		return err
	}
	s.say("\n   choosy asks for 24000 MiB with volcano.sh/vgpu-mode: mig,hami-core; kubectl describe pod choosy shows:")
	s.quote(text)
	if err := s.draw(ctx); err != nil {
		return err
	}
	got, err := s.share(ctx, "choosy")
	if err != nil {
		return err
	}
	if got.Mode != sharing.HAMiCore {
		return fmt.Errorf("the pod is in mode %s", got.Mode)
	}
	log, err := s.user.WaitLog(ctx, "choosy", "main", "forever")
	if err != nil {
		return err
	}
	if !strings.Contains(log, "libvgpu=mapped") {
		return fmt.Errorf("the pod fell to mode hami-core and nothing holds it to its limit")
	}
	return nil
}

// inMIG is a pod that asks for memory in mode mig.
func inMIG(name string) *workload.Pod {
	return pod(name).App("main", workload.Ask{Number: 1, Memory: 15000}, "info", "alloc", "15000", "expect", "ok", "forever").
		Annotate(wire.UserMode, string(sharing.MIG))
}

// hasPartition shows what a pod sees and checks that it is a partition of a profile.
func (s *story) hasPartition(ctx context.Context, name, profile string) error {
	log, err := s.user.WaitLog(ctx, name, "main", "forever")
	if err != nil {
		return err
	}
	s.say("\n   %s:", name)
	s.quote(log)
	got, err := s.share(ctx, name)
	if err != nil {
		return err
	}
	if seen := report.Field(log, "info index=", "profile"); seen != profile || got.Partition.Profile != profile {
		return fmt.Errorf("%s sees a partition %q and was given %q, want %s", name, seen, got.Partition.Profile, profile)
	}
	if !strings.HasPrefix(report.Field(log, "info index=", "uuid"), "MIG-") || !strings.Contains(log, "info devices=1\n") {
		return fmt.Errorf("%s sees something else than one partition", name)
	}
	return nil
}
