// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
)

// tieBreak is small beside one point of any score and large beside the rounding
// of float64 for scores up to thousands on ten thousand nodes.
const tieBreak = 1e-3

// nodeOrder scores a node for the task: the policy's score times the weight, plus the worth
// of the mode that the pod would get there, plus the node's place in the order of names.
// The last decides between equals: Volcano draws lots among equal scores, which would
// scatter pods that belong together.
//
// A pod without devices is scored only by a policy that weighs what later pods lose: the CPU beside
// free devices.
func (j *judge) nodeOrder(t *api.TaskInfo, info *api.NodeInfo) (float64, error) {
	a, n := j.askOf(t), j.nodes[info.Name]
	if n == nil || j.off != nil || a != nil && n.Inventory == nil || a == nil && !j.valuesBare() {
		return 0, nil
	}
	return j.scoreNode(a, n, t, info) + j.store.rank[info.Name]*tieBreak, nil
}

// scoreNode is what order says of a node apart from its name, from memory if the node has just been
// asked the same.
func (j *judge) scoreNode(a *ask, n *nodes.Node, t *api.TaskInfo, info *api.NodeInfo) float64 {
	var ledger *sharing.Ledger
	if n.Inventory != nil {
		ledger = j.ledgerFor(n, t, info)
	}
	k := kindOn(ledger, a, j.kindOf(a, t))
	q := nodes.Question{Ledger: ledger, Era: j.store.era, Kind: k.Kind, Free: freeFor(t, info)}
	if score, known := n.RememberedScore(&q); known {
		return score
	}
	score := j.computeScore(a, n, t, info, &q)
	if k.repeated {
		n.RememberScore(q, score)
	}
	return score
}

// computeScore asks the policy for its score.
func (j *judge) computeScore(a *ask, n *nodes.Node, t *api.TaskInfo, info *api.NodeInfo, q *nodes.Question) float64 {
	score := 0.0
	if j.args.Weight > 0 {
		score = j.policyScore(a, t, q) * j.args.Weight
	}
	if a == nil {
		return score
	}
	return score + j.modeScore(a, n, t, info)
}
