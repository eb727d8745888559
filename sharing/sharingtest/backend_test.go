// SPDX-License-Identifier: Apache-2.0

package sharingtest

import (
	"testing"

	"deviceshare/sharing"
)

// A suite that nothing fails proves nothing: each promise is broken once.
func TestTheSuiteCatchesBrokenBackends(t *testing.T) {
	calls := 0
	var kept []byte
	var seen *sharing.View
	var was sharing.View
	wrong := map[string]struct {
		promise string
		b       broken
	}{
		"gives what is not there": {"what it gives can be reserved until it refuses", func(v *sharing.View, req *sharing.Request) (sharing.Share, sharing.Reason) {
			return share(v, req.Memory.On(v.Device.Memory), req.Cores), sharing.Fits
		}},
		"gives less than was asked": {"what it gives can be reserved until it refuses", func(v *sharing.View, req *sharing.Request) (sharing.Share, sharing.Reason) {
			s, reason := honest(v, req)
			s.Memory -= s.Memory / 2
			return s, reason
		}},
		"answers differently": {"it changes none of its arguments and answers the same again", func(v *sharing.View, req *sharing.Request) (sharing.Share, sharing.Reason) {
			s, reason := honest(v, req)
			calls++
			s.Memory -= sharing.Bytes(calls)
			return s, reason
		}},
		"changes the device": {"it changes none of its arguments and answers the same again", func(v *sharing.View, req *sharing.Request) (sharing.Share, sharing.Reason) {
			v.Device.Cores--
			return honest(v, req)
		}},
		"changes the view": {"it changes none of its arguments and answers the same again", func(v *sharing.View, req *sharing.Request) (sharing.Share, sharing.Reason) {
			s, reason := honest(v, req)
			*v = sharing.NewView(v.Device, v.Held()[:0], nil)
			return s, reason
		}},
		"keeps the view": {"it keeps no view", func(v *sharing.View, req *sharing.Request) (sharing.Share, sharing.Reason) {
			if seen != v {
				seen, was = v, *v
			}
			return honest(&was, req)
		}},
		"changes the request": {"it changes none of its arguments and answers the same again", func(v *sharing.View, req *sharing.Request) (sharing.Share, sharing.Reason) {
			req.Cores++
			return honest(v, req)
		}},
		"allocates to refuse": {"it refuses without allocating", func(v *sharing.View, req *sharing.Request) (sharing.Share, sharing.Reason) {
			kept = make([]byte, 1+len(req.Container))
			return honest(v, req)
		}},
		"takes no percentage for all": {"it refuses what no device can give", func(v *sharing.View, req *sharing.Request) (sharing.Share, sharing.Reason) {
			if req.Memory.On(v.Device.Memory) == 0 {
				return share(v, 0, 0), sharing.Fits
			}
			return honest(v, req)
		}},
		"looks at the empty device": {"two containers of a pod never collide", func(v *sharing.View, req *sharing.Request) (sharing.Share, sharing.Reason) {
			empty := sharing.NewView(v.Device, nil, nil)
			return honest(&empty, req)
		}},
		"never gives the whole": {"a request for the whole device gets it alone", func(v *sharing.View, req *sharing.Request) (sharing.Share, sharing.Reason) {
			s, reason := honest(v, req)
			s.Whole = false
			return s, reason
		}},
		"counts ended containers": {"the share of an init container is free for the containers after it", func(v *sharing.View, req *sharing.Request) (sharing.Share, sharing.Reason) {
			if len(v.Held()) == 0 && req.Memory.Whole() {
				return honest(v, req)
			}
			calls++
			if calls%2 == 0 {
				return sharing.Share{}, sharing.NotEnoughMemory
			}
			return honest(v, req)
		}},
	}
	_ = kept
	for name, c := range wrong {
		t.Run(name, func(t *testing.T) { catches(t, c.promise, c.b) })
	}
}

// catches checks that a backend breaks a promise that an honest one keeps.
func catches(t *testing.T, promise string, b broken) {
	for _, p := range promises() {
		if p.says != promise {
			continue
		}
		if err := p.kept(b, Device(0, "A100-80", sharing.HAMiCore)); err == nil {
			t.Errorf("the promise %q is said to be kept", p.says)
		}
		if err := p.kept(broken(honest), Device(0, "A100-80", sharing.HAMiCore)); err != nil {
			t.Errorf("an honest backend breaks %q: %v", p.says, err)
		}
		return
	}
	t.Fatalf("no promise %q", promise)
}

// broken is a backend of one function.
type broken func(*sharing.View, *sharing.Request) (sharing.Share, sharing.Reason)

func (broken) Mode() sharing.Mode { return sharing.HAMiCore }

func (b broken) Fit(v *sharing.View, req *sharing.Request) (sharing.Cost, sharing.Reason) {
	s, reason := b(v, req)
	return s.Cost(), reason
}

func (b broken) Share(v *sharing.View, req *sharing.Request) sharing.Share {
	s, _ := b(v, req)
	return s
}

func honest(v *sharing.View, req *sharing.Request) (sharing.Share, sharing.Reason) {
	if _, reason := v.Divide(req); reason != sharing.Fits {
		return sharing.Share{}, reason
	}
	return v.Portion(req), sharing.Fits
}

func share(v *sharing.View, memory sharing.Bytes, cores sharing.Percent) sharing.Share {
	return sharing.Share{Device: v.Device.ID, Mode: sharing.HAMiCore, Memory: memory, Cores: cores}
}
