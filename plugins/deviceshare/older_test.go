// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// A node that runs an older device plugin says that a device is in mode mig and not
// how it can be cut.
func TestADeviceThatDoesNotSayHowItIsCutCostsNothingElseOfItsNode(t *testing.T) {
	inv := devices("n1", 2, 81920)
	inv.Devices[0].Mode, inv.Devices[0].Model = sharing.MIG, "NVIDIA A100-SXM4-80GB"
	node := nodeOf(t, inv)
	delete(node.Annotations, wire.NodeInventory)
	node.Annotations[wire.NodeRegister] = "GPU-n1-0,7,81920,NVIDIA-NVIDIA A100-SXM4-80GB,true,mig:GPU-n1-1,10,81920,NVIDIA-Test,true,hami-core:"

	theirs := boundTo(podOf("theirs", "g", asks{number: 1, memory: 19968}), "n1")
	theirs.Annotations[wire.PodAssigned] = "GPU-n1-0[group2-1],NVIDIA,19968,0:"
	theirs.Annotations[wire.PodNode] = "n1"
	n1 := infoOf(node, []*corev1.Pod{theirs})
	p := bare(t, n1)
	if n := p.store.cluster.Nodes()["n1"]; len(n.Blocking) > 0 || n.Ledger.Views()[0].Sharers() != 1 {
		t.Errorf("blocked by %v; on the device: %d", n.Blocking, n.Ledger.Views()[0].Sharers())
	}
	if err := try(p, n1); err != nil {
		t.Errorf("the device in mode hami-core says %v", err)
	}
	cut := podOf("cut", "g", asks{number: 1, memory: 1000})
	cut.Annotations[wire.UserMode] = string(sharing.MIG)
	err := p.predicate(api.NewTaskInfo(cut), n1)
	if err == nil || !strings.Contains(err.Error(), "1 with unknown partitions (PartitionsUnknown)") || !err.(*api.FitError).Status.ContainsUnschedulableAndUnresolvable() {
		t.Errorf("a pod that wants a partition is told %v", err)
	}
}
