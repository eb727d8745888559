// SPDX-License-Identifier: Apache-2.0

package request_test

import (
	"reflect"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

// FuzzRead checks that any pod gives a request in range or mistakes, never both,
// and the same every time.
func FuzzRead(f *testing.F) {
	f.Add(int64(1), int64(1000), int64(30), int64(0), int64(1), "mig,hami-core", "GPU-a,GPU-b", "A100", "spread")
	f.Add(int64(-1), int64(1)<<62, int64(101), int64(101), int64(1)<<40, ",", "GPU-a[g-0]", "", "b i n")
	f.Add(int64(0), int64(5), int64(0), int64(50), int64(-1), "foo", "0", " , ", "binpack")
	f.Add(int64(1), int64(5), int64(0), int64(0), int64(1), "", "", "", "never")
	f.Fuzz(func(t *testing.T, n, mem, core, pct, factor int64, mode, ids, models, policy string) {
		p := pod(amounts{number: n, memory: mem, cores: core, percent: pct})
		p.Annotations = map[string]string{
			wire.UserMode: mode, wire.UserUseIDs: ids, wire.UserNotIDs: ids, wire.UserUseModels: models,
			wire.UserNotModels: models, wire.UserPolicy: policy, wire.UserGroupPolicy: policy, wire.UserNeighbours: policy, wire.UserNotBeside: models,
			wire.UserVirtual: policy,
		}
		for _, drop := range []string{wire.UserMode, wire.UserUseIDs, wire.UserUseModels, wire.UserPolicy, wire.UserGroupPolicy, wire.UserNeighbours} {
			check(t, p, factor)
			delete(p.Annotations, drop)
		}
		check(t, p, factor)
		delete(p.Containers[0].Resources, percent)
		check(t, p, factor)
	})
}

func check(t *testing.T, p *podspec.Pod, factor int64) {
	got, mistakes := rules(podspec.DefaultNames(), factor).Read(p)
	again, _ := rules(podspec.DefaultNames(), factor).Read(p)
	if !reflect.DeepEqual(got, again) {
		t.Fatalf("read twice: %+v and %+v", got, again)
	}
	if len(mistakes) > 0 {
		if !reflect.DeepEqual(got, sharing.PodRequest{}) {
			t.Fatalf("half-read: %+v with %v", got, mistakes)
		}
		for _, m := range mistakes {
			if m.Path == "" || m.Message == "" {
				t.Fatalf("a mistake without place or reason: %+v", m)
			}
		}
		return
	}
	for _, r := range got.Requests {
		b, absolute := r.Memory.Absolute()
		if r.Count < 1 || r.Count > 1024 || r.Cores < 0 || r.Cores > 100 || absolute && (b <= 0 || b > 16<<40) {
			t.Fatalf("out of range: %+v", r)
		}
	}
}
