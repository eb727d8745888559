// SPDX-License-Identifier: Apache-2.0

package sharingtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"deviceshare/sharing"
)

// Backend checks that a backend keeps the promises of sharing.Backend, on devices
// of its mode. Every backend must pass it; a new one needs no other test to be
// safe.
func Backend(t *testing.T, b sharing.Backend) {
	t.Helper()
	if _, ok := (sharing.Backends{b}).For(b.Mode()); !ok {
		t.Fatalf("mode %q is not found again", b.Mode())
	}
	for name, d := range devices(b) {
		for _, p := range promises() {
			t.Run(name+": "+p.says, func(t *testing.T) {
				if err := p.kept(b, d); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// promise is one thing a backend must keep; kept says how it did not.
type promise struct {
	says string
	kept func(sharing.Backend, sharing.Device) error
}

func promises() []promise {
	return []promise{
		{"it changes none of its arguments and answers the same again", isPure},
		{"what it gives can be reserved until it refuses", neverOverGrants},
		{"releasing what was reserved restores the view", restores},
		{"it keeps no view", keepsNoView},
		{"it refuses without allocating", refusesForFree},
		{"it refuses a device that is not healthy, closed or unknown", refusesUnusable},
		{"it refuses what no device can give", refusesNonsense},
		{"two containers of a pod never collide", containersDoNotCollide},
		{"the share of an init container is free for the containers after it", initIsReused},
		{"a request for the whole device gets it alone", wholeIsAlone},
		{"every option can be reserved, and the first is the one Fit prefers", optionsFit},
	}
}

// devices are the kinds of device a backend is checked on.
func devices(b sharing.Backend) map[string]sharing.Device {
	m := b.Mode()
	few := Device(0, "A100-80", m)
	few.MaxShares = 2
	all := map[string]sharing.Device{
		"A100": Device(0, "A100-80", m), "A30": Device(0, "A30", m), "two sharers": few,
	}
	if cuts(b) {
		all["free A100"], all["free A30"] = Free(Device(0, "A100-40", m)), Free(Device(0, "A30", m))
		all["H200"] = Device(0, "H200", m)
		all["best fit of geometries"] = BestFit(Device(0, "A100-80", m))
		all["best fit of an A30"] = BestFit(Free(Device(0, "A30", m)))
		all["best fit of an H200"] = BestFit(Device(0, "H200", m))
		return all
	}
	scaled := Device(0, "T4", m)
	scaled.Memory, scaled.Cores = 2*scaled.Memory, 200
	all["scaled"] = scaled
	return all
}

func cuts(b sharing.Backend) bool {
	_, ok := b.(sharing.Partitioner)
	return ok
}

// fit is what Place does with one device.
func fit(b sharing.Backend, v *sharing.View, pod *sharing.PodRequest) (sharing.Share, sharing.Reason) {
	if reason := v.Admit(pod); reason != sharing.Fits {
		return sharing.Share{}, reason
	}
	return Fit(b, v, &pod.Requests[0])
}

// Fit asks a backend for a share, without the checks that come before.
func Fit(b sharing.Backend, v *sharing.View, req *sharing.Request) (sharing.Share, sharing.Reason) {
	if _, reason := b.Fit(v, req); reason != sharing.Fits {
		return sharing.Share{}, reason
	}
	return b.Share(v, req), sharing.Fits
}

// random is a repeatable source of requests.
func random(seed uint64) func() *sharing.PodRequest {
	r := rand.New(rand.NewPCG(seed, 1))
	n := 0
	return func() *sharing.PodRequest {
		n++
		req := Ask("main", []int64{0, 100, 1000, 5000, 9000, 15000, 20000, 40000, 80000}[r.IntN(9)],
			[]sharing.Percent{0, 0, 5, 14, 30, 50, 100}[r.IntN(7)])
		if r.IntN(4) == 0 {
			req.Memory = sharing.PercentMemory(sharing.Percent(1 + r.IntN(100)))
		}
		return Pod(fmt.Sprintf("pod-%d-%d", seed, n), req)
	}
}

// filled runs a check on views from an empty to a full device.
func filled(b sharing.Backend, d sharing.Device, check func(l *sharing.Ledger, pod *sharing.PodRequest) error) error {
	for seed := range uint64(20) {
		next := random(seed)
		l := sharing.NewLedger(Node("n1", d), sharing.Backends{b})
		for range 20 {
			pod := next()
			if err := check(l, pod); err != nil {
				return err
			}
			share, reason := fit(b, &l.Views()[0], pod)
			if reason != sharing.Fits {
				continue
			}
			if err := l.Reserve(pod.Owner, Give("main", share)); err != nil {
				return fmt.Errorf("the ledger does not take what was given: %w", err)
			}
		}
	}
	return nil
}

func isPure(b sharing.Backend, d sharing.Device) error {
	return filled(b, d, func(l *sharing.Ledger, pod *sharing.PodRequest) error {
		v := &l.Views()[0]
		device, held := *v.Device, append([]sharing.Held(nil), v.Held()...)
		view, req := *v, pod.Requests[0]
		first, reason := fit(b, v, pod)
		second, again := fit(b, v, pod)
		if first != second || reason != again {
			return fmt.Errorf("two answers to the same question: %v %v, %v %v", first, reason, second, again)
		}
		if !reflect.DeepEqual(*v.Device, device) || !reflect.DeepEqual(append([]sharing.Held(nil), v.Held()...), held) ||
			!reflect.DeepEqual(*v, view) || pod.Requests[0] != req {
			return errors.New("an argument was changed")
		}
		return nil
	})
}

// keepsNoView: a caller tries one placement after the other in the same view.
func keepsNoView(b sharing.Backend, d sharing.Device) error {
	return filled(b, d, func(l *sharing.Ledger, pod *sharing.PodRequest) error {
		v := sharing.NewView(&d, nil, sharing.Backends{b})
		fit(b, &v, pod)
		v = l.Views()[0]
		share, reason := fit(b, &v, pod)
		if want, but := fit(b, &l.Views()[0], pod); share != want || reason != but {
			return fmt.Errorf("%+v, %v of the view that was there before: want %+v, %v", share, reason, want, but)
		}
		return nil
	})
}

func neverOverGrants(b sharing.Backend, d sharing.Device) error {
	return filled(b, d, func(l *sharing.Ledger, pod *sharing.PodRequest) error {
		if err := l.Check(); err != nil {
			return err
		}
		share, reason := fit(b, &l.Views()[0], pod)
		if reason != sharing.Fits {
			return nil
		}
		req := &pod.Requests[0]
		cost, _ := b.Fit(&l.Views()[0], req)
		if cost.Loss < 0 {
			return fmt.Errorf("later requests win %+v", cost)
		}
		if cost.Loss = 0; cost != share.Cost() {
			return fmt.Errorf("Fit says it takes %+v, the share is %+v", cost, share)
		}
		promised := req.Memory.On(d.Memory)
		if cuts(b) {
			promised = promised * 85 / 100 // hardware keeps some of each slice
		}
		if share.Device != d.ID || share.Mode != b.Mode() || share.Memory < promised || share.Memory <= 0 || share.Cores < req.Cores {
			return fmt.Errorf("asked %+v, got %+v", *req, share)
		}
		return nil
	})
}

func restores(b sharing.Backend, d sharing.Device) error {
	return filled(b, d, func(l *sharing.Ledger, pod *sharing.PodRequest) error {
		before := l.Views()[0]
		share, reason := fit(b, &before, pod)
		if reason != sharing.Fits {
			return nil
		}
		if err := l.Reserve(pod.Owner, Give("main", share)); err != nil {
			return err
		}
		l.Release(pod.Owner)
		if after := l.Views()[0]; !reflect.DeepEqual(before, after) {
			return fmt.Errorf("before %+v, after %+v", before, after)
		}
		return nil
	})
}

// Allocations is how often f allocates. What the runtime allocates beside it by chance is left out.
func Allocations(f func()) float64 {
	if testing.AllocsPerRun(1, f) == 0 {
		return 0
	}
	return testing.AllocsPerRun(20, f) // rounds down
}

func refusesForFree(b sharing.Backend, d sharing.Device) error {
	return filled(b, d, func(l *sharing.Ledger, pod *sharing.PodRequest) error {
		v := &l.Views()[0]
		if _, reason := fit(b, v, pod); reason == sharing.Fits {
			return nil
		}
		if n := Allocations(func() { fit(b, v, pod) }); n != 0 {
			return fmt.Errorf("refusing %+v allocates %v times", pod.Requests[0], n)
		}
		return nil
	})
}
