// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/place"
)

// modeStep is the score of one place in the pod's list of modes. It is more than all
// plugins of a session give together: the list is a requirement, a score a preference.
const modeStep = 1e7

// pointsOfPercent is one percent of a device in the points of a policy that learns.
const pointsOfPercent = 0.1

// modeScore returns what the mode that the pod would get on a node adds to the node's
// score. For a pod that names several modes, a node where it gets an earlier one comes
// before every node where it gets a later one. For a pod that names none, it is the
// mode's weight, and the documented order of modes decides between equals.
func (j *judge) modeScore(a *ask, n *nodes.Node, t *api.TaskInfo, info *api.NodeInfo) float64 {
	named := a.request.Modes
	if len(named) == 1 {
		return 0
	}
	mode, ok := j.modeOn(a, n, t, info)
	switch {
	case !ok:
		return 0
	case len(named) > 1:
		return float64(len(named)-1-slices.Index(named, mode)) * modeStep
	}
	order := j.store.backends
	weight := j.args.ModeWeights[mode]
	if j.policyFor(a).Learns() {
		weight *= pointsOfPercent
	}
	return weight*j.args.Weight + float64(len(order)-order.Index(mode))*tieBreak
}

// modeOn returns the mode that the pod would get on the node, that of its weakest share
// if its containers get several; false if it would get none.
func (j *judge) modeOn(a *ask, n *nodes.Node, t *api.TaskInfo, info *api.NodeInfo) (sharing.Mode, bool) {
	if n.Only != "" {
		return n.Only, len(a.request.Modes) == 0 || slices.Contains(a.request.Modes, n.Only)
	}
	placement, refused := place.Place(j.ledgerFor(n, t, info).Views(), j.requestOn(a, n), j.backendsFor(a), j.policyFor(a))
	if refused.Refused() {
		return "", false
	}
	return weakestMode(&placement, j.store.backends)
}

// weakestMode is the mode of the share whose backend comes last in the list, which
// begins with the strongest isolation.
func weakestMode(p *sharing.Placement, order sharing.Backends) (sharing.Mode, bool) {
	last := -1
	for i := range p.Containers {
		for j := range p.Containers[i].Shares {
			last = max(last, order.Index(p.Containers[i].Shares[j].Mode))
		}
	}
	if last < 0 {
		return "", false
	}
	return order[last].Mode(), true
}

// modeFallback returns the event for a pod that names several modes and gets another than the
// first: which mode, and why the earlier ones did not fit. For any other pod it is nil.
// It looks at the whole cluster, so replicas of one shape share the answer within a
// session.
func (p *Plugin) modeFallback(a *ask, placement *sharing.Placement) *nodes.Fallback {
	mode, ok := weakestMode(placement, p.store.backends)
	choice := slices.Index(a.request.Modes, mode)
	if !ok || choice < 1 {
		return nil
	}
	key := fmt.Sprint(choice, a.shape, p.namesOf(a))
	why, known := p.fallbacks[key]
	if !known || a.shape == "" {
		reasons := make([]string, 0, choice)
		for _, m := range a.request.Modes[:choice] {
			reasons = append(reasons, p.whyNot(a, m))
		}
		why = strings.Join(reasons, "; ")
		p.fallbacks[key] = why
	}
	return &nodes.Fallback{
		Why: fmt.Sprintf("the devices are in mode %s, choice %d of %s: %s", mode, choice+1, joinModes(a.request.Modes), why),
	}
}

// whyNot says why the pod gets a mode on no node. It looks at devices in that mode only.
func (p *Plugin) whyNot(a *ask, m sharing.Mode) string {
	request := a.request
	request.Modes = []sharing.Mode{m}
	var sum sharing.Refusals
	fit := 0
	for _, n := range p.nodes {
		if n.Inventory == nil || n.Unusable != nil {
			continue
		}
		var views []sharing.View
		for _, v := range p.overlay.currentLedger(n).Views() {
			if v.Device.Mode == m {
				views = append(views, v)
			}
		}
		if len(views) == 0 {
			continue
		}
		if _, refused := place.Place(views, &request, p.backendsFor(a), p.policyFor(a)); refused.Refused() {
			addRefusals(&sum, &refused)
		} else {
			fit++
		}
	}
	switch {
	case fit > 0:
		return fmt.Sprintf("%s: %s", m, p.passedOver(fit))
	case sum.Devices == 0:
		return fmt.Sprintf("%s: no device is in this mode", m)
	}
	return fmt.Sprintf("%s: %s", m, sum.String())
}

// passedOver says why none of the nodes was chosen where the pod's devices fit.
func (p *Plugin) passedOver(fit int) string {
	which := fmt.Sprintf("%d nodes have room for it and were", fit)
	if fit == 1 {
		which = "one node has room for it and was"
	}
	if all, enough := len(p.infos), nodesToFind(len(p.infos)); enough < all {
		return fmt.Sprintf("%s not chosen: for other reasons than devices, or not looked at, since Volcano stops when %d of %d nodes fit (--percentage-nodes-to-find)", which, enough, all)
	}
	return which + " not chosen, for other reasons than devices"
}

// addRefusals adds the refusals of one node to a sum. A node's refusals are about one container;
// the sum names the first of them by name, whatever the order of nodes.
func addRefusals(sum, r *sharing.Refusals) {
	if sum.Container == "" || r.Container < sum.Container {
		sum.Container, sum.Wanted = r.Container, r.Wanted
	}
	sum.Devices += r.Devices
	for i := range r.Count {
		sum.Count[i] = uint16(min(int(sum.Count[i])+int(r.Count[i]), math.MaxUint16))
	}
}

func joinModes(modes []sharing.Mode) string {
	texts := make([]string, 0, len(modes))
	for _, m := range modes {
		texts = append(texts, string(m))
	}
	return strings.Join(texts, ",")
}
