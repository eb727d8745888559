// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"strings"
	"testing"

	"deviceshare/sharing/quota"
)

func TestALimitThatCannotBeMeantIsDoubted(t *testing.T) {
	total := quota.Amounts{{Model: a100, Memory: 640 * gib, Cores: 800, Number: 80}}
	for name, c := range map[string]struct {
		entry  quota.Entry
		factor int64
		none   bool // no device is known
		want   string
	}{
		"20Gi is twenty pebibytes": {
			entry: quota.Entry{Field: "capability", Name: "volcano.sh/vgpu-memory", Text: "20Gi", Value: 20 << 30},
			want:  "capability volcano.sh/vgpu-memory: 20Gi counts as 20971520GiB, since the amount is a number of 1MiB: write it without a suffix, 20480 for 20GiB",
		},
		"in larger units": {
			entry: quota.Entry{Field: "deserved", Name: "volcano.sh/vgpu-memory.a100", Text: "20Gi", Value: 20 << 30}, factor: 1024,
			want: "write it without a suffix, 20 for 20GiB",
		},
		"a suffix before any device is known": {
			entry: quota.Entry{Name: "volcano.sh/vgpu-memory", Text: "1Ti", Value: 1 << 40}, none: true, want: "1048576 for 1024GiB",
		},
		"20G by its size":                {entry: quota.Entry{Name: "volcano.sh/vgpu-memory", Text: "20G", Value: 20e9}, want: "more than 100 times what the cluster has (640GiB): it limits nothing"},
		"80k is how 80000 is kept":       {entry: quota.Entry{Name: "volcano.sh/vgpu-memory", Text: "80k", Value: 80000}},
		"a plain amount":                 {entry: quota.Entry{Name: "volcano.sh/vgpu-memory", Text: "655360", Value: 655360}},
		"all that a cluster may grow to": {entry: quota.Entry{Name: "volcano.sh/vgpu-memory", Text: "64M", Value: 64_000_000}},
		"a suffix of compute":            {entry: quota.Entry{Name: "volcano.sh/vgpu-cores", Text: "2Ki", Value: 2048}, want: "has a suffix of amounts of memory and counts as 2048 percent"},
		"too much compute":               {entry: quota.Entry{Name: "volcano.sh/vgpu-cores", Text: "99999", Value: 99999}, want: "counts as 99999 percent, more than 100 times"},
		"too many devices":               {entry: quota.Entry{Name: "volcano.sh/vgpu-number", Text: "1M", Value: 1_000_000}, want: "what the cluster has (80)"},
		"less than none":                 {entry: quota.Entry{Name: "volcano.sh/vgpu-number", Text: "-1", Value: -1}, want: "is negative and counts as 0: it lets no pod in"},
		"half a percent":                 {entry: quota.Entry{Name: "volcano.sh/vgpu-cores", Text: "500m", Value: 1, Fraction: true}, want: "is a fraction and counts as 1 percent"},
		"a model that is misspelt":       {entry: quota.Entry{Name: "volcano.sh/vgpu-memory.a1000", Text: "20480", Value: 20480}, want: "no device of the cluster has"},
		"a model of no cluster":          {entry: quota.Entry{Name: "volcano.sh/vgpu-memory.a1000", Text: "20480", Value: 20480}, none: true},
		"another resource":               {entry: quota.Entry{Name: "memory", Text: "20Gi", Value: 20 << 30}},
	} {
		t.Run(name, func(t *testing.T) {
			n := names()
			if c.factor > 0 {
				n.Factor = c.factor
			}
			has := total
			if c.none {
				has = nil
			}
			got := strings.Join(quota.Doubts([]quota.Entry{c.entry}, n, has), "\n")
			if !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
