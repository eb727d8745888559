// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/mig"
	"deviceshare/sharing/sharingtest"
)

// met is the profile that meets a request for memory and compute on an empty
// device, whatever the policy.
func met(t *testing.T, model string, mib int64, cores sharing.Percent, want string) {
	t.Helper()
	free := sharingtest.Free(sharingtest.Device(0, model, sharing.MIG))
	for says, d := range map[string]sharing.Device{"first-match": free, "best-fit": sharingtest.BestFit(free)} {
		v := sharing.NewView(&d, nil, factory.New())
		req := sharingtest.Ask("main", mib, cores)
		share, reason := sharingtest.Fit(mig.New(), &v, &req)
		got := share.Partition.Profile
		if reason != sharing.Fits {
			got = reason.String()
		}
		if got != want {
			t.Errorf("%s: %d MiB and %d%% of the compute of an %s get %s, want %s", says, mib, cores, model, got, want)
		}
		if reason == sharing.Fits && share.Cores < cores {
			t.Errorf("%s: got %d%%, asked %d%%", says, share.Cores, cores)
		}
	}
}

func TestVGPUCores40NeedsThreeOfTheSevenComputeSlicesOfAnA100(t *testing.T) {
	met(t, "A100-80", 1000, 14, "1g.10gb") // one seventh is 14.28 percent
	met(t, "A100-80", 1000, 15, "2g.20gb")
	met(t, "A100-80", 1000, 28, "2g.20gb")
	met(t, "A100-80", 1000, 40, "3g.40gb")
	met(t, "A100-80", 1000, 42, "3g.40gb")
	met(t, "A100-80", 1000, 43, "4g.40gb")
	met(t, "A100-80", 1000, 57, "4g.40gb")
	met(t, "A100-80", 1000, 58, "7g.80gb")
	met(t, "A100-40", 1000, 40, "3g.20gb")
}

func TestVGPUCores40NeedsTwoOfTheFourComputeSlicesOfAnA30(t *testing.T) {
	met(t, "A30", 1000, 25, "1g.6gb")
	met(t, "A30", 1000, 26, "2g.12gb")
	met(t, "A30", 1000, 40, "2g.12gb")
	met(t, "A30", 1000, 50, "2g.12gb")
	met(t, "A30", 1000, 51, "4g.24gb")
}

func TestVGPUCores40NeedsThreeOfTheSevenComputeSlicesOfAnH200(t *testing.T) {
	met(t, "H200", 1000, 14, "1g.18gb")
	met(t, "H200", 1000, 40, "3g.71gb")
	met(t, "H200", 1000, 100, "7g.141gb")
}

// Memory and compute are both met, whichever needs more.
func TestARequestIsMetByMemoryAndByCores(t *testing.T) {
	met(t, "A100-80", 15000, 5, "1g.20gb") // two slices of memory and one of compute
	met(t, "A100-80", 15000, 20, "2g.20gb")
	met(t, "A100-80", 30000, 5, "3g.40gb")
	met(t, "A100-80", 15000, 40, "3g.40gb")
	met(t, "A100-80", 60000, 5, "7g.80gb")
	met(t, "A30", 5000, 40, "2g.12gb")
	met(t, "A30", 12288, 5, "2g.12gb")
	met(t, "A30", 12289, 5, "4g.24gb")
	met(t, "H200", 30000, 5, "1g.35gb")
	met(t, "H200", 30000, 40, "3g.71gb")
	met(t, "H200", 80000, 0, "7g.141gb")
	met(t, "A100-80", 1000, 101, "NoPartitionFits")
}
