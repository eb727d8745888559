// SPDX-License-Identifier: Apache-2.0

package request_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

// even makes a pod of one container whose amounts are totals.
func even(resources amounts) *podspec.Pod {
	p := pod(resources)
	p.Annotations = map[string]string{wire.UserSplit: wire.SplitEven}
	return p
}

func TestATotalIsSplitEvenly(t *testing.T) {
	for name, c := range map[string]struct {
		resources amounts
		factor    int64
		defaults  request.Defaults
		want      sharing.Request
	}{
		"memory and cores over two devices": {
			resources: amounts{number: 2, memory: 20000, cores: 60},
			want:      sharing.Request{Count: 2, Memory: sharing.AbsoluteMemory(10000 * sharing.MiB), Cores: 30, Even: true},
		},
		"the remainder is given by none": {
			resources: amounts{number: 3, memory: 10000, cores: 100},
			want:      sharing.Request{Count: 3, Memory: sharing.AbsoluteMemory(3333 * sharing.MiB), Cores: 33, Even: true},
		},
		"memory is split in MiB, whatever the factor": {
			resources: amounts{number: 3, memory: 10}, factor: 1024,
			want: sharing.Request{Count: 3, Memory: sharing.AbsoluteMemory(3413 * sharing.MiB), Even: true},
		},
		"all compute of every device": {
			resources: amounts{number: 4, cores: 400},
			want:      sharing.Request{Count: 4, Memory: sharing.WholeMemory(), Cores: 100, Even: true},
		},
		"a percentage is a total too": {
			resources: amounts{number: 4, percent: 100},
			want:      sharing.Request{Count: 4, Memory: sharing.PercentMemory(25), Even: true},
		},
		"one device gives the total": {
			resources: amounts{number: 1, memory: 20000, cores: 60},
			want:      sharing.Request{Count: 1, Memory: sharing.AbsoluteMemory(20000 * sharing.MiB), Cores: 60},
		},
		"nothing said is the whole memory of each": {
			resources: amounts{number: 2},
			want:      sharing.Request{Count: 2, Memory: sharing.WholeMemory(), Even: true},
		},
		"memory of 0 is the whole memory of each": {
			resources: amounts{number: 2, memory: 0, cores: 0},
			want:      sharing.Request{Count: 2, Memory: sharing.WholeMemory(), Even: true},
		},
		"a default is that of one device and is not split": {
			resources: amounts{number: 2},
			defaults:  request.Defaults{Memory: 100, Cores: 20},
			want:      sharing.Request{Count: 2, Memory: sharing.AbsoluteMemory(100 * sharing.MiB), Cores: 20, Even: true},
		},
		"the least that each can give": {
			resources: amounts{number: 7, memory: 7, cores: 7},
			want:      sharing.Request{Count: 7, Memory: sharing.AbsoluteMemory(sharing.MiB), Cores: 1, Even: true},
		},
		"the most that devices may have": {
			resources: amounts{number: 2, memory: 2 * 16 << 10, cores: 200}, factor: 1 << 10,
			want: sharing.Request{Count: 2, Memory: sharing.AbsoluteMemory(16 << 40), Cores: 100, Even: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Container = "main"
			got, mistakes := request.Rules{Names: podspec.DefaultNames(), Factor: c.factor, Defaults: c.defaults}.Read(even(c.resources))
			if len(mistakes) > 0 || len(got.Requests) != 1 {
				t.Fatal(got, mistakes)
			}
			if got.Requests[0] != c.want {
				t.Errorf("got  %+v\nwant %+v", got.Requests[0], c.want)
			}
		})
	}
}

func TestWhatCannotBeSplitEvenly(t *testing.T) {
	const main = "spec.containers[0] (main) resources.limits["
	for name, c := range map[string]struct {
		resources amounts
		factor    int64
		want      []string
	}{
		"less than 1 MiB of each": {
			resources: amounts{number: 8, memory: 7},
			want:      []string{main + memory + "]: 7 cannot be split evenly over 8 devices: that is less than 1MiB of each"},
		},
		"less than 1 percent of each": {
			resources: amounts{number: 8, cores: 7, percent: 0},
			want: []string{
				main + percent + "]: 0 cannot be split evenly over 8 devices: that is less than 1 percent of each",
				main + cores + "]: 7 cannot be split evenly over 8 devices: that is less than 1 percent of each",
			},
		},
		"more than the devices have": {
			resources: amounts{number: 2, cores: 201},
			want:      []string{main + cores + "]: 201 is more than 2 devices have, over which volcano.sh/vgpu-split splits it: want at most 200"},
		},
		"more memory than the devices have": {
			resources: amounts{number: 2, memory: 2*16<<10 + 1}, factor: 1 << 10,
			want: []string{main + memory + "]: 32769 is more than 2 devices have, over which volcano.sh/vgpu-split splits it: want at most 32768"},
		},
		"memory that overflows with the factor": {
			resources: amounts{number: 2, memory: 1 << 62}, factor: 1 << 20,
			want: []string{main + memory + "]: 4611686018427387904 is more than 2 devices have, over which volcano.sh/vgpu-split splits it: want at most 32"},
		},
		"a negative total": {
			resources: amounts{number: 2, memory: -7},
			want:      []string{main + memory + "]: -7 is negative"},
		},
		"one device is asked as without a split": {
			resources: amounts{number: 1, cores: 101},
			want:      []string{main + cores + "]: 101 is more than 100: it is percent of one device, and each of the container's devices gives that much"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, mistakes := rules(podspec.DefaultNames(), c.factor).Read(even(c.resources))
			compare(t, mistakes, c.want)
			if len(got.Requests) > 0 {
				t.Errorf("half-read: %+v", got)
			}
		})
	}
}

func TestOnlyAnEvenSplitIsKnown(t *testing.T) {
	for _, text := range []string{"", "Even", "even ", "uneven", "true"} {
		p := pod(amounts{number: 2, cores: 150})
		p.Annotations = map[string]string{wire.UserSplit: text}
		_, mistakes := rules(podspec.DefaultNames(), 1).Read(p)
		compare(t, mistakes, []string{fmt.Sprintf("metadata.annotations[volcano.sh/vgpu-split]: unknown split %q: want even", text)})
	}
}

// Whatever is split: no more than the total is given, less than one unit for each device is lost,
// and none gives nothing.
func TestPartsAreEvenAndNeverMoreThanTheTotal(t *testing.T) {
	random := rand.New(rand.NewPCG(13, 4))
	for range 5000 {
		n, factor := 2+random.Int64N(15), 1+random.Int64N(1024)
		mib, percents := 1+random.Int64N(200_000/factor), 1+random.Int64N(100*n)
		got, mistakes := rules(podspec.DefaultNames(), factor).Read(even(amounts{number: n, memory: mib, cores: percents}))
		if len(mistakes) > 0 {
			if mib*factor >= n && percents >= n {
				t.Fatalf("%d MiB and %d%% over %d: %v", mib*factor, percents, n, mistakes)
			}
			continue
		}
		each, _ := got.Requests[0].Memory.Absolute()
		given, total := each*sharing.Bytes(n), sharing.MiBs(mib*factor)
		if each <= 0 || given > total || total-given >= sharing.Bytes(n)*sharing.MiB {
			t.Fatalf("%v of each of %d devices, the total is %v", each, n, total)
		}
		c := int64(got.Requests[0].Cores)
		if c <= 0 || c*n > percents || percents-c*n >= n {
			t.Fatalf("%d%% of each of %d devices, the total is %d%%", c, n, percents)
		}
	}
}
