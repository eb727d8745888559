// SPDX-License-Identifier: Apache-2.0

package policy

import "deviceshare/sharing"

// LossScorer is an optional power of a policy: it prefers the device on which later
// requests lose least, where the device's backend forecasts that. ByLoss discovers it.
type LossScorer interface {
	Policy
	// Percent turns the score that Device gave a device into the score of its node, 0 to
	// 100: 100 if nothing is lost, 0 if as much as the device is worth. The
	// weight of the device's mode is not in it: the caller adds that to the score itself.
	Percent(v *sharing.View, score int64) int64
}

// ByLoss returns the policy as a LossScorer; false if it has not that power, or if
// nobody forecasts what later requests lose on the device.
func ByLoss(p Policy, v *sharing.View) (LossScorer, bool) {
	s, ok := p.(LossScorer)
	return s, ok && v.Worth() > 0
}

// scoreByLoss is the score by loss: two million if nothing is lost, a million less for as
// much as the device is worth. A loss of twice that scores 0.
func scoreByLoss(c sharing.Cost, worth int64) int64 {
	return 2 * (million - toMillionths(c.Loss, 2*worth))
}

// percentKept is kept as the score of a node.
func percentKept(score int64) int64 { return max(0, (score-million)*100/million) }
