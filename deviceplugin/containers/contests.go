// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing/podspec"
)

// Offers says what device plugins offer the kubelet, by resource. It is safe for concurrent use.
type Offers interface {
	Offers(ctx context.Context) (map[string][]string, error)
}

// ContestWatch keeps the node's state informed of what other device plugins offer: a device that
// two offer is given away twice. One goroutine uses it.
type ContestWatch struct {
	offers Offers
	names  func() podspec.Names
	agent  *agent.Agent
	last   []node.OtherOffer
	failed bool
}

// NewContestWatch returns a watch that has not looked yet. The names are those of our resources.
func NewContestWatch(o Offers, names func() podspec.Names, a *agent.Agent) *ContestWatch {
	return &ContestWatch{offers: o, names: names, agent: a}
}

// lookForOthers is how often the kubelet is asked, and firstLook how long the first answer may
// take, before which nothing is offered.
const (
	lookForOthers = 10 * time.Second
	firstLook     = 2 * time.Second
)

// Begin looks for the first time. It comes before anything is published or offered.
func (w *ContestWatch) Begin(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	w.Look(ctx)
}

// Run looks again and again, until ctx ends.
func (w *ContestWatch) Run(ctx context.Context) error {
	ticker := time.NewTicker(lookForOthers)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			w.Look(ctx)
		}
	}
}

// Look takes in what others offer now. What cannot be found out stays as it was.
func (w *ContestWatch) Look(ctx context.Context) {
	offers, err := w.offers.Offers(ctx)
	if err != nil {
		if !w.failed && ctx.Err() == nil {
			klog.ErrorS(err, "it is not known what other device plugins offer; a device that is offered twice would not be noticed")
		}
		w.failed = true
		return
	}
	w.failed = false
	if others := offersOfOthers(offers, w.names()); !reflect.DeepEqual(others, w.last) {
		w.last = others
		w.agent.Send(node.OfferedByOthers{Offers: others})
	}
}

// offersOfOthers returns what is offered under other names than ours, in the order of the names.
// Those that are ours by default may be left by the device plugin that was here before.
func offersOfOthers(offers map[string][]string, names podspec.Names) (others []node.OtherOffer) {
	ours := append(names.Existing(), podspec.DefaultNames().Existing()...)
	for _, resource := range slices.Sorted(maps.Keys(offers)) {
		if ids := offers[resource]; len(ids) > 0 && !slices.Contains(ours, resource) {
			others = append(others, node.OtherOffer{Resource: resource, IDs: ids})
		}
	}
	return others
}
