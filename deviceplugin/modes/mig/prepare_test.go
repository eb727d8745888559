// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/modes/mig"
	"deviceshare/sharing"
)

func TestAContainerGetsExactlyThePlaceTheSchedulerChose(t *testing.T) {
	m := newMachine(t)
	for _, p := range []place{{a100, "1g.10gb", 6}, {a100, "3g.40gb", 0}, {a100, "1g.20gb", 4}, {other, "7g.80gb", 0}, {h100, "2g.20gb", 2}} {
		owner := sharing.Owner(fmt.Sprintf("%s-%d", p.device, p.start))
		want := fmt.Sprintf("%s %s at %d", p.device, p.profile, p.start)
		if got := m.at(m.give(claim(owner, "main", p))[0]); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestPartitionsOfSeveralDevicesComeInTheOrderOfTheClaim(t *testing.T) {
	m := newMachine(t)
	ids := m.give(claim("uid", "main", place{other, "1g.10gb", 0}, place{a100, "2g.20gb", 4}))
	if len(ids) != 2 || m.at(ids[0]) != "GPU-other 1g.10gb at 0" || m.at(ids[1]) != "GPU-a100 2g.20gb at 4" {
		t.Errorf("the container got %v", ids)
	}
}

func TestTheSecondStartOfAContainerTouchesNothing(t *testing.T) {
	m := newMachine(t)
	c := claim("uid", "main", place{a100, "3g.40gb", 4})
	first := m.give(c)
	p := m.plugin()
	again, err := p.Prepare(context.Background(), c)
	if err != nil || again.Devices[0] != first[0] || m.Effects() != 0 {
		t.Errorf("the second start has %d effects and gives %v (%v), want none and %v", m.Effects(), again.Devices, err, first)
	}
}

func TestAnInstanceThatExistsIsAdopted(t *testing.T) {
	cases := map[string]struct {
		compute bool
		calls   string
	}{
		"whole, made by hand":        {true, "DestroyComputeInstance CreateComputeInstance"},
		"without a compute instance": {false, "CreateComputeInstance"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			p := place{a100, "2g.20gb", 2}
			gi := m.byHand(p, tc.compute)
			m.cards.Calls()
			uuid := m.give(claim("uid", "main", p))[0]
			var changes []string
			for _, call := range m.cards.Calls() {
				if strings.HasPrefix(call, "Create") || strings.HasPrefix(call, "Destroy") {
					changes = append(changes, call)
				}
			}
			if _, got, _, _ := m.cards.Locate(string(uuid)); got != gi || strings.Join(changes, " ") != tc.calls {
				t.Errorf("it got GPU instance %d after %v, want %d after %q", got, changes, gi, tc.calls)
			}
		})
	}
}

func TestAnInstanceThatSomebodySplitIsRemadeUnlessItIsUsed(t *testing.T) {
	m := newMachine(t)
	p := place{a100, "3g.40gb", 4}
	gi := m.byHand(p, true)
	m.cards.Split(a100, gi)
	m.cards.Use(a100, gi, 4711)
	m.refuse(claim("uid", "main", p), "3g.40gb at slices 4 to 7", "4711")
	m.cards.Use(a100, gi)
	m.give(claim("uid", "main", p))
	all, err := m.cards.Instances(a100)
	if err != nil || len(all) != 1 || len(all[0].Compute) != 1 || !all[0].Compute[0].Spans {
		t.Errorf("the device has %+v, %v", all, err)
	}
}

func TestAnInstanceThatAStrangerUsesIsNotTakenOver(t *testing.T) {
	m := newMachine(t)
	p := place{a100, "2g.20gb", 2}
	gi := m.byHand(p, true)
	m.cards.Use(a100, gi, 4711)
	err := m.refuse(claim("uid", "main", p), "2g.20gb at slices 2 to 3", "4711", "end them")
	if !errors.Is(err, driver.ErrInUse) {
		t.Errorf("the error is %v", err)
	}
	m.cards.Use(a100, gi)
	c := claim("uid", "main", p)
	first := m.give(c)
	m.cards.Use(a100, gi, 4712) // its own, which outlives the container for a moment
	if again := m.give(c); again[0] != first[0] {
		t.Errorf("its restart gets %v, before %v", again, first)
	}
}

func TestAUserThatTheDriverDoesNotListIsNoticedAllTheSame(t *testing.T) {
	m := newMachine(t)
	p := place{a100, "2g.20gb", 2}
	m.give(claim("uid", "main", p))
	m.release("uid")
	all, err := m.cards.Instances(a100)
	if err != nil || len(all) != 1 {
		t.Fatalf("the device has %+v, %v", all, err)
	}
	m.cards.Use(a100, all[0].GI, 4711) // outlives its pod
	for range 10 {
		m.cards.Fail("Processes", driver.ErrNoPermission)
	}
	if err := m.refuse(claim("next", "main", p), "2g.20gb at slices 2 to 3"); !errors.Is(err, driver.ErrInUse) {
		t.Errorf("the error is %v", err)
	}
	m.cards.Use(a100, all[0].GI)
	m.give(claim("next", "main", p))
}

func TestTheSameOwnerAndNobodyElseMayHoldAPlaceTwice(t *testing.T) {
	one := claim("one", "main", place{a100, "3g.40gb", 4})
	cases := map[string]struct {
		second  modes.Claim
		refused string
	}{
		"the same place for another pod":       {claim("two", "main", place{a100, "3g.40gb", 4}), "pod one"},
		"an overlapping place for another pod": {claim("two", "main", place{a100, "1g.10gb", 6}), "3g.40gb at slices 4 to 7"},
		"a larger place around it":             {claim("two", "main", place{a100, "7g.80gb", 0}), "pod one"},
		"the place beside it":                  {claim("two", "main", place{a100, "3g.40gb", 0}), ""},
		"the same place on another device":     {claim("two", "main", place{other, "3g.40gb", 4}), ""},
		"another app container of the pod":     {claim("one", "side", place{a100, "1g.10gb", 4}), "container main of pod one"},
		"the same container again":             {one, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			before := m.at(m.give(one)[0])
			if tc.refused == "" {
				m.give(tc.second)
			} else {
				var misplaced *modes.Misplaced
				if err := m.refuse(tc.second, tc.refused, "one partition has one owner"); !errors.As(err, &misplaced) {
					t.Errorf("it would be tried again for ever: %v", err)
				}
				if strings.Contains(m.files(), "two") {
					t.Errorf("the refused claim left\n%s", m.files())
				}
			}
			if now := m.at(m.give(one)[0]); now != before {
				t.Errorf("the owner now has %s", now)
			}
		})
	}
}

func TestContainersOfOnePodThatNeverRunTogetherMayHoldTheSamePartitionAndNoOverlappingOne(t *testing.T) {
	kinds := map[string]sharing.ContainerKind{"app": sharing.App, "init": sharing.Init, "sidecar": sharing.Sidecar}
	cases := []struct {
		first, second string
		share         bool
	}{
		{"init", "app", true}, {"init", "init", true}, {"init", "sidecar", true},
		{"sidecar", "init", false}, {"sidecar", "app", false}, {"app", "app", false},
	}
	for _, tc := range cases {
		for _, same := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s before %s, same place %v", tc.first, tc.second, same), func(t *testing.T) {
				m := newMachine(t)
				first := claim("uid", "first", place{a100, "3g.40gb", 4})
				second := claim("uid", "second", place{a100, "3g.40gb", 4})
				if !same {
					second = claim("uid", "second", place{a100, "1g.10gb", 5})
					tc.share = false // making one would destroy the other
				}
				first.Kind, first.Order = kinds[tc.first], 0
				second.Kind, second.Order = kinds[tc.second], 1
				m.give(first)
				if !tc.share {
					before := m.at(m.give(first)[0])
					m.patience = time.Minute // nobody waits for a pod to get out of its own way
					m.refuse(second, "container first of pod uid", "its placement is wrong")
					if now := m.at(m.give(first)[0]); now != before {
						t.Errorf("the first container now has %s", now)
					}
					return
				}
				m.give(second)
				if got := m.at(m.give(first)[0]); got != "GPU-a100 3g.40gb at 4" { // the pod starts anew
					t.Errorf("the first container then has %s", got)
				}
			})
		}
	}
}

func TestWhatNeverRunsTogetherIsAQuestionWithinOnePodOnly(t *testing.T) {
	m := newMachine(t)
	first := claim("one", "warm-up", place{a100, "3g.40gb", 4})
	first.Kind = sharing.Init
	m.give(first)
	second := claim("two", "main", place{a100, "3g.40gb", 4})
	second.Order = 1
	m.refuse(second, "container warm-up of pod one")
}

func TestAPlaceIsWaitedForWhileItsOwnerIsOnTheWayOut(t *testing.T) {
	m := newMachine(t)
	m.patience = time.Minute
	p := m.plugin()
	ctx := context.Background()
	if _, err := p.Prepare(ctx, claim("old", "main", place{a100, "3g.40gb", 4})); err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	go func() {
		_, err := p.Prepare(ctx, claim("new", "main", place{a100, "1g.10gb", 4}))
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if err := p.Unprepare(ctx, "old"); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestWaitingEndsWithTheCall(t *testing.T) {
	m := newMachine(t)
	m.patience = time.Minute
	m.give(claim("old", "main", place{a100, "3g.40gb", 4}))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := m.plugin().Prepare(ctx, claim("new", "main", place{a100, "1g.10gb", 4}))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "pod old") {
		t.Errorf("the error is %v", err)
	}
}

func TestAHoldingThatCannotBeReadBlocksItsDeviceUntilItsPodEnds(t *testing.T) {
	for name, text := range map[string]string{"damaged": "{", "of another version": `{"version":9}`, "of somebody else": ""} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.give(claim("lost", "main", place{a100, "1g.10gb", 0}))
			file := filepath.Join(m.root, string(a100), "lost_main")
			if name == "of somebody else" {
				whole, _ := os.ReadFile(file)
				text = strings.ReplaceAll(string(whole), "lost", "found")
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			m.refuse(claim("new", "main", place{a100, "1g.10gb", 3}), "pod lost", file)
			m.give(claim("new", "main", place{other, "1g.10gb", 3}))
			m.give(claim("lost", "main", place{a100, "1g.10gb", 0})) // its restart writes it anew
			m.give(claim("new", "main", place{a100, "1g.10gb", 3}))
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			m.release("lost")
			m.give(claim("late", "main", place{a100, "1g.10gb", 0}))
		})
	}
}

func TestWhatAKilledProcessLeftOfAFileGoesWithItsOwner(t *testing.T) {
	m := newMachine(t)
	dir := filepath.Join(m.root, string(a100))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".lost_main.tmp-1"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.give(claim("new", "main", place{a100, "1g.10gb", 3}))
	owners, err := m.plugin().Owners()
	if err != nil || fmt.Sprint(owners) != "[lost new]" {
		t.Errorf("owners are %v, %v", owners, err)
	}
	m.release("lost")
	names, err := os.ReadDir(dir)
	if err != nil || slices.ContainsFunc(names, func(e os.DirEntry) bool { return strings.Contains(e.Name(), "lost") }) {
		t.Errorf("left are %v, %v", names, err)
	}
}

func TestClaimsThatMakeNoSenseLeaveNothing(t *testing.T) {
	good := place{a100, "1g.10gb", 0}
	cases := map[string]struct {
		spoil func(*modes.Claim)
		want  string
	}{
		"no partition":             {func(c *modes.Claim) { c.Devices[0].Share.Partition = sharing.Partition{} }, "names no partition"},
		"a place on no device":     {func(c *modes.Claim) { c.Devices[0].Share.Partition.Start = 64 }, "which no device has"},
		"a place before the first": {func(c *modes.Claim) { c.Devices[0].Share.Partition.Start = -1 }, "which no device has"},
		"two places on one device": {func(c *modes.Claim) { c.Devices = append(c.Devices, c.Devices[0]) }, "different devices"},
		"an owner with the mark":   {func(c *modes.Claim) { c.Owner = "a_b" }, "underscore"},
		"a container with a slash": {func(c *modes.Claim) { c.Container = "a/b" }, "file name"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			c := claim("uid", "main", good)
			tc.spoil(&c)
			m.refuse(c, tc.want)
			if m.files() != "" {
				t.Errorf("it left\n%s", m.files())
			}
		})
	}
}

func TestWhatTheDriverRefusesIsToldWithWhatWasAttempted(t *testing.T) {
	broken := errors.New("the driver is confused")
	for _, call := range []string{"MIGMode", "Instances", "CreateGPUInstance", "CreateComputeInstance", "DestroyComputeInstance", "DestroyGPUInstance"} {
		t.Run(call, func(t *testing.T) {
			m := newMachine(t)
			m.byHand(place{a100, "1g.10gb", 5}, true)
			m.cards.Fail(call, broken)
			c := claim("uid", "main", place{a100, "3g.40gb", 4})
			err := m.refuse(c, string(a100), broken.Error())
			if !errors.Is(err, broken) {
				t.Errorf("the cause is lost: %v", err)
			}
			m.give(c) // the next attempt finds what the first left
		})
	}
}

func TestManyPodsAtOnceOnOneDeviceGetTheirOwn(t *testing.T) {
	m := newMachine(t)
	p := m.plugin()
	ctx := context.Background()
	var wait sync.WaitGroup
	for round := range 3 {
		for slice := range 7 {
			wait.Go(func() {
				owner := sharing.Owner(fmt.Sprintf("uid-%d", slice))
				in, err := p.Prepare(ctx, claim(owner, "main", place{a100, "1g.10gb", slice}))
				if err != nil || m.at(in.Devices[0]) != fmt.Sprintf("GPU-a100 1g.10gb at %d", slice) {
					t.Errorf("round %d: pod %d has %v, %v", round, slice, in, err)
				}
				if err := p.Unprepare(ctx, owner); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
	}
}

func TestAStartThatIsGivenUpStopsBeforeTheNextEffect(t *testing.T) {
	m := newMachine(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := m.plugin().Prepare(ctx, claim("uid", "main", place{a100, "3g.40gb", 4}))
	all, _ := m.cards.Instances(a100)
	if !errors.Is(err, context.Canceled) || len(all) != 0 {
		t.Errorf("the error is %v, the device has %v", err, all)
	}
}

func TestWaitingForADriverThatSaysInUseEndsWithTheCall(t *testing.T) {
	m := newMachine(t)
	gi := m.byHand(place{a100, "1g.10gb", 5}, true)
	m.cards.Use(a100, gi, 1)
	p := mig.New(mig.Config{Files: host.OS{}, Root: m.root, Driver: m.cards})
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	_, err := p.Prepare(ctx, claim("uid", "main", place{a100, "3g.40gb", 4}))
	if !errors.Is(err, driver.ErrInUse) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v, want in use until the time was up", err)
	}
}

func TestEveryChangeOfTheHardwareIsNoted(t *testing.T) {
	m := newMachine(t)
	m.byHand(place{a100, "2g.20gb", 4}, true)
	c := claim("uid", "main", place{a100, "3g.40gb", 4})
	first := m.give(c)[0]
	m.give(c)
	m.cards.Reboot()
	second := m.give(c)[0]
	want := []string{
		"GPU-a100: destroyed 2g.20gb at slices 4 to 5 (GPU instance 1), which nobody held",
		"GPU-a100: made 3g.40gb at slices 4 to 7 (GPU instance 1)",
		"GPU-a100: made 3g.40gb at slices 4 to 7 (GPU instance 1)",
		fmt.Sprintf("GPU-a100: container main of pod uid had %s, which is gone, and now has %s in its place", first, second),
	}
	if got := strings.Join(m.notes, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("noted\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}
