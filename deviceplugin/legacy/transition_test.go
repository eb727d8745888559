// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/config"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/kubelet/kubelettest"
	"deviceshare/sharing"
)

// node is a node with one device whose memory comes in four units.
type node struct {
	changes chan struct{}
	moved   chan AmountSource

	mu      sync.Mutex // guards what follows
	record  kubelet.Record
	told    []error
	amounts *Amounts
}

func (n *node) ReadCheckpoint() (kubelet.Record, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.record, nil
}

func (n *node) Counted() (sharing.Inventory, bool) {
	return sharing.Inventory{Devices: []sharing.Device{{ID: "GPU-a", Memory: 4 * sharing.GiB, Cores: 3, Healthy: true}}}, true
}

func (n *node) Changes() (<-chan struct{}, func()) { return n.changes, func() {} }

func (n *node) Pod(o sharing.Owner) (*corev1.Pod, bool) { return nil, o == "live" }

func (n *node) Device() config.Device {
	d := config.DefaultDevice()
	d.MemoryFactor = 1024
	return d
}

func (n *node) SourceChanged() { n.moved <- n.amounts.Source() }

func (n *node) InTransition(obstacle error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = append(n.told, obstacle)
}

// find makes the kubelet's record something else.
func (n *node) find(r kubelet.Record) {
	n.mu.Lock()
	n.record = r
	n.mu.Unlock()
	n.changes <- struct{}{}
}

func TestAmountsAreOfferedTheLegacyWayForAsLongAsAContainerHoldsSome(t *testing.T) {
	k := kubelettest.Start(t)
	name := config.DefaultDevice().MemoryName
	holder := kubelet.Held{Owner: "live", Resource: name}
	n := &node{changes: make(chan struct{}), moved: make(chan AmountSource), record: kubelet.Record{Held: []kubelet.Held{holder}}}
	n.amounts = NewAmounts(AmountsConfig{
		Setting: "auto", Sockets: k.Plugins(), Checkpoint: n, Devices: n, Pods: n, Configuration: n, Observer: n,
	})
	if got := n.amounts.Source(); got != FromNone {
		t.Errorf("before anything is known the source is %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = n.amounts.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })

	if got := <-n.moved; got != FromDevicePlugin {
		t.Fatalf("with a holder the source is %s", got)
	}
	k.Await(t, "the memory's four units or the cores' three", func(healthy, _, _ int) bool { return healthy == 4 || healthy == 3 })

	n.find(kubelet.Record{Registered: []string{name}})
	if got := <-n.moved; got != FromNone {
		t.Fatalf("while the kubelet remembers the source is %s", got)
	}
	n.find(kubelet.Record{})
	if got := <-n.moved; got != FromNodeStatus {
		t.Fatalf("when it has forgotten the source is %s", got)
	}
	n.find(kubelet.Record{}) // nothing changes
	n.find(kubelet.Record{}) // the look before this one has ended
	cancel()
	<-ended
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.told) < 3 || !strings.Contains(fmt.Sprint(n.told[0]), "1 containers hold") || !strings.Contains(fmt.Sprint(n.told[1]), "five minutes") ||
		slices.ContainsFunc(n.told[2:], func(obstacle error) bool { return obstacle != nil }) {
		t.Errorf("told %q", n.told)
	}
}
