// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTopologyOfCards(t *testing.T) {
	const want = `fakegpu 1
driver 580.95.05 cuda 13.0
gpu model="NVIDIA A100-SXM4-80GB" memory=81920MiB cc=8.0 sms=108 numa=0 mig=enabled pci=0000:07:00.0
gpu model="NVIDIA A100-SXM4-80GB" memory=81920MiB cc=8.0 sms=108 numa=0 mig=capable pci=0000:0f:00.0
gpu model="NVIDIA H100 80GB HBM3" memory=81920MiB cc=9.0 sms=132 numa=1 mig=capable pci=0000:17:00.0
gpu model="NVIDIA A100-SXM4-80GB" memory=81920MiB cc=8.0 sms=108 numa=1 mig=capable pci=0000:1f:00.0
`
	if diff := cmp.Diff(want, Topology(A100().Partitioned(), A100(), H100(), A100())); diff != "" {
		t.Error(diff)
	}
}
