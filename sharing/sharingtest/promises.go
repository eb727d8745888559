// SPDX-License-Identifier: Apache-2.0

package sharingtest

import (
	"fmt"

	"deviceshare/sharing"
)

func refusesUnusable(b sharing.Backend, d sharing.Device) error {
	small := Pod("new", Ask("main", 100, 0))
	sick, closed, cordoned := d, d, d
	sick.Healthy, closed.MaxShares, cordoned.Cordon = false, 0, &sharing.Cordon{}
	other, picky := *small, *small
	other.Modes = []sharing.Mode{"another"}
	picky.Selector.NotIDs = []sharing.DeviceID{d.ID}
	blocked, former := sharing.NewLedger(Node("n1", d), sharing.Backends{b}), sharing.NewLedger(Node("n1", d), sharing.Backends{b})
	blocked.Block("unreadable")
	former.Record("old", Give("main", sharing.Share{Device: d.ID, Mode: "former", Memory: sharing.GiB}))

	cases := []struct {
		says string
		l    *sharing.Ledger
		pod  *sharing.PodRequest
		want sharing.Reason
	}{
		{"unhealthy", sharing.NewLedger(Node("n1", sick), sharing.Backends{b}), small, sharing.Unhealthy},
		{"cordoned", sharing.NewLedger(Node("n1", cordoned), sharing.Backends{b}), small, sharing.Cordoned},
		{"mode not named by the pod", sharing.NewLedger(Node("n1", d), sharing.Backends{b}), &other, sharing.WrongMode},
		{"not selected", sharing.NewLedger(Node("n1", d), sharing.Backends{b}), &picky, sharing.NotSelected},
		{"blocked", blocked, small, sharing.Blocked},
		{"held in the mode it had before", former, small, sharing.HeldExclusively},
		{"no shares left", sharing.NewLedger(Node("n1", closed), sharing.Backends{b}), small, sharing.TooManyShares},
	}
	for _, c := range cases {
		if _, reason := fit(b, &c.l.Views()[0], c.pod); reason != c.want {
			return fmt.Errorf("%s: %v, want %v", c.says, reason, c.want)
		}
	}
	return nil
}

func refusesNonsense(b sharing.Backend, d sharing.Device) error {
	with := func(m sharing.Memory, cores sharing.Percent) sharing.Request {
		return sharing.Request{Container: "main", Count: 1, Memory: m, Cores: cores}
	}
	tiny := d
	if !cuts(b) { // the smallest partition is never nothing
		tiny.Memory = sharing.MiB
	} else {
		tiny.MIG = nil
	}
	cases := []struct {
		says string
		d    sharing.Device
		req  sharing.Request
	}{
		{"more memory than any device", d, with(sharing.AbsoluteMemory(sharing.MaxBytes), 0)},
		{"negative memory", d, with(sharing.AbsoluteMemory(-sharing.GiB), 0)},
		{"ten times the compute", d, with(sharing.AbsoluteMemory(sharing.GiB), 1000)},
		{"negative compute", d, with(sharing.AbsoluteMemory(sharing.GiB), -1)},
		// One percent of next to nothing is nothing, and nothing means unlimited
		// on the node.
		{"a percentage that comes to nothing", tiny, with(sharing.PercentMemory(1), 0)},
	}
	for _, c := range cases {
		l := sharing.NewLedger(Node("n1", c.d), sharing.Backends{b})
		if share, reason := fit(b, &l.Views()[0], Pod("p", c.req)); reason == sharing.Fits {
			return fmt.Errorf("%s: gives %+v", c.says, share)
		}
	}
	return nil
}

func containersDoNotCollide(b sharing.Backend, d sharing.Device) error {
	return filled(b, d, func(l *sharing.Ledger, pod *sharing.PodRequest) error {
		v := l.Views()[0]
		first, reason := fit(b, &v, pod)
		if reason != sharing.Fits {
			return nil
		}
		beside := v.After(sharing.App, &first)
		second, reason := fit(b, &beside, pod)
		if reason != sharing.Fits {
			return nil
		}
		p := Give("one", first)
		p.Containers = append(p.Containers, sharing.ContainerShares{Container: "two", Shares: []sharing.Share{second}})
		if err := l.Fork().Reserve(pod.Owner, p); err != nil {
			return err
		}
		return nil
	})
}

func initIsReused(b sharing.Backend, d sharing.Device) error {
	return filled(b, d, func(l *sharing.Ledger, pod *sharing.PodRequest) error {
		v := l.Views()[0]
		first, reason := fit(b, &v, pod)
		if reason != sharing.Fits {
			return nil
		}
		later := v.After(sharing.Init, &first)
		second, reason := fit(b, &later, pod)
		if reason != sharing.Fits || second != first {
			return fmt.Errorf("the init container got %+v, the same request after it %+v, %v", first, second, reason)
		}
		p := Give("main", second)
		p.Containers = append([]sharing.ContainerShares{{Container: "init", Kind: sharing.Init, Shares: []sharing.Share{first}}}, p.Containers...)
		if err := l.Fork().Reserve(pod.Owner, p); err != nil {
			return err
		}
		return nil
	})
}

func wholeIsAlone(b sharing.Backend, d sharing.Device) error {
	whole, small := Pod("whole", Ask("main", 0, 0)), Pod("small", Ask("main", 1, 0))
	for _, order := range [][2]*sharing.PodRequest{{whole, small}, {small, whole}} {
		l := sharing.NewLedger(Node("n1", d), sharing.Backends{b})
		share, reason := fit(b, &l.Views()[0], order[0])
		if reason != sharing.Fits {
			return fmt.Errorf("%s on an empty device: %v", order[0].Owner, reason)
		}
		if order[0] == whole && share.Whole == cuts(b) {
			return fmt.Errorf("a whole device is a share without limits, a partition is not: %+v", share)
		}
		if err := l.Reserve(order[0].Owner, Give("main", share)); err != nil {
			return err
		}
		if got, reason := fit(b, &l.Views()[0], order[1]); reason == sharing.Fits {
			return fmt.Errorf("%s beside %s: %+v", order[1].Owner, order[0].Owner, got)
		}
	}
	return nil
}

func optionsFit(b sharing.Backend, d sharing.Device) error {
	chooser, ok := b.(sharing.Chooser)
	if !ok {
		return nil
	}
	return filled(b, d, func(l *sharing.Ledger, pod *sharing.PodRequest) error {
		v := &l.Views()[0]
		if v.Admit(pod) != sharing.Fits {
			return nil
		}
		req := &pod.Requests[0]
		preferred, reason := Fit(b, v, req)
		seen := map[sharing.Share]bool{}
		for n := 0; ; n++ {
			share, cost, ok := chooser.Option(v, req, n)
			if n == 0 && (ok != (reason == sharing.Fits) || share != preferred) {
				return fmt.Errorf("option 0 is %+v, Fit gives %+v", share, preferred)
			}
			if !ok {
				return nil
			}
			if cost.Loss = 0; cost != share.Cost() {
				return fmt.Errorf("option %d, %+v, is said to cost %+v", n, share, cost)
			}
			if seen[share] || n > 100 {
				return fmt.Errorf("option %d, %+v, was there before", n, share)
			}
			seen[share] = true
			if err := l.Fork().Reserve(pod.Owner, Give("main", share)); err != nil {
				return fmt.Errorf("option %d: %v", n, err)
			}
		}
	})
}
