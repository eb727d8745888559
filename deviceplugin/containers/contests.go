// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
)

// Offers says what is offered of this node's devices under which name. It is safe for concurrent
// use.
type Offers interface {
	Offers(ctx context.Context) (map[string][]string, error)
}

// SliceOffers are those of ResourceSlices, by DRA driver, which have to be read first.
type SliceOffers interface {
	Offers
	// WaitForSync waits until they are read, or ctx ends.
	WaitForSync(ctx context.Context) bool
}

// PartitionFinder finds the device of a partition by the partition's UUID.
type PartitionFinder interface {
	MIGDevice(uuid string) (driver.MIGDevice, error)
}

// ContestConfig is what a ContestWatch works with.
type ContestConfig struct {
	Kubelet Offers // of device plugins, by resource
	Slices  SliceOffers
	Devices PartitionFinder
	Names   func() podspec.Names // of our resources
	Agent   *agent.Agent
}

// ContestWatch keeps the node's state informed of what others offer of its devices: a device that
// two offer is given away twice. One goroutine uses it.
type ContestWatch struct {
	cfg     ContestConfig
	kubelet offerSource
	slices  offerSource
	// parents are the devices of partitions that others offer.
	parents map[string]sharing.DeviceID
	last    []node.OtherOffer
}

// NewContestWatch returns a watch that has not looked yet.
func NewContestWatch(cfg ContestConfig) *ContestWatch {
	return &ContestWatch{
		cfg: cfg, kubelet: offerSource{Offers: cfg.Kubelet, what: "other device plugins offer"},
		slices: offerSource{Offers: cfg.Slices, what: "DRA drivers offer"}, parents: map[string]sharing.DeviceID{},
	}
}

// lookForOthers is how often one looks, and firstLook how long the first answers may take, before
// which nothing is offered.
const (
	lookForOthers = 10 * time.Second
	firstLook     = 2 * time.Second
)

// Begin looks for the first time. It comes before anything is published or offered.
func (w *ContestWatch) Begin(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	w.cfg.Slices.WaitForSync(ctx)
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
	others := offersOfPlugins(w.kubelet.look(ctx), w.cfg.Names())
	others = append(others, offersOfDrivers(w.slices.look(ctx))...)
	w.nameParents(others)
	if !reflect.DeepEqual(others, w.last) {
		w.last = others
		w.cfg.Agent.Send(node.OfferedByOthers{Offers: others})
	}
}

// nameParents adds to partitions the devices that they are of. One that the driver does not know
// now is asked for again.
func (w *ContestWatch) nameParents(others []node.OtherOffer) {
	found := map[string]sharing.DeviceID{}
	for i := range others {
		for _, id := range others[i].IDs {
			uuid := partitionIn(id)
			if uuid == "" {
				continue
			}
			parent, known := w.parents[uuid]
			if !known {
				if at, err := w.cfg.Devices.MIGDevice(uuid); err == nil {
					parent, known = at.Parent, true
				}
			}
			if known {
				found[uuid] = parent
				others[i].IDs = append(slices.Clip(others[i].IDs), string(parent)) // others have them, too
			}
		}
	}
	w.parents = found
}

// partitionIn returns the UUID of a partition that a name has, "" if it has none.
func partitionIn(id string) string {
	const prefix, length = "MIG-", len("MIG-00000000-0000-0000-0000-000000000000")
	if at := strings.Index(id, prefix); at >= 0 && len(id) >= at+length {
		return id[at : at+length]
	}
	return ""
}

// offerSource is one place where others say what they offer, with its last answer.
type offerSource struct {
	Offers
	what   string
	last   map[string][]string
	failed bool
}

func (s *offerSource) look(ctx context.Context) map[string][]string {
	offers, err := s.Offers.Offers(ctx)
	switch {
	case err == nil:
		s.last = offers
	case !s.failed && ctx.Err() == nil:
		klog.ErrorS(err, "it is not known what "+s.what+"; a device that is offered twice would not be noticed")
	}
	s.failed = err != nil
	return s.last
}

// offersOfPlugins returns what is offered as other resources than ours, in the order of the names.
// Those that are ours by default may be left by the device plugin that was here before.
func offersOfPlugins(offers map[string][]string, names podspec.Names) (others []node.OtherOffer) {
	ours := append(names.Existing(), podspec.DefaultNames().Existing()...)
	for _, resource := range slices.Sorted(maps.Keys(offers)) {
		if ids := offers[resource]; len(ids) > 0 && !slices.Contains(ours, resource) {
			others = append(others, node.OtherOffer{Resource: resource, IDs: ids})
		}
	}
	return others
}

// offersOfDrivers returns what DRA drivers offer, in the order of their names.
func offersOfDrivers(offers map[string][]string) (others []node.OtherOffer) {
	for _, name := range slices.Sorted(maps.Keys(offers)) {
		others = append(others, node.OtherOffer{Driver: name, IDs: offers[name]})
	}
	return others
}
