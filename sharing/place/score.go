// SPDX-License-Identifier: Apache-2.0

package place

import (
	"deviceshare/sharing"
	"deviceshare/sharing/policy"
)

// Score says how well a node as it is suits a pod that it can serve, 0 to 100;
// higher is preferred. It is the policy's score of the node, unless the policy
// weighs what later requests lose on a device: then it is how little they lose,
// each container on the device where that is least, so that the same device wins
// whether its rivals are on its node or on another. It allocates nothing.
func Score(views []sharing.View, pod *sharing.PodRequest, backends sharing.Backends, p policy.Policy) int64 {
	if !mayScoreByLoss(views, pod, p) {
		return p.Node(views, pod)
	}
	a := attempt{views: views, pod: pod, backends: backends, policy: p}
	if len(pod.Modes) == 0 {
		score, _ := a.meanScore()
		return score
	}
	for _, m := range pod.Modes {
		a.mode = m
		if score, ok := a.meanScore(); ok {
			return score
		}
	}
	return 0
}

// mayScoreByLoss reports whether the pod may get a device that the policy weighs by what
// is lost.
func mayScoreByLoss(views []sharing.View, pod *sharing.PodRequest, p policy.Policy) bool {
	for i := range views {
		if _, ok := policy.ByLoss(p, &views[i]); ok && views[i].Offered(pod) {
			return true
		}
	}
	return false
}

// meanScore is the mean over the containers; false if one of them fits nowhere.
func (a *attempt) meanScore() (int64, bool) {
	var sum int64
	for i := range a.pod.Requests {
		var refusals sharing.Refusals
		best := a.findBestDevice(i, nil, &refusals)
		if refusals.Found == 0 {
			return 0, false
		}
		v := &a.views[best.device]
		if s, ok := policy.ByLoss(a.policy, v); ok {
			sum += s.Percent(v, best.score)
		} else {
			sum += a.policy.Node(a.views, a.pod)
		}
	}
	if n := int64(len(a.pod.Requests)); n > 0 {
		return sum / n, true
	}
	return 0, true
}
