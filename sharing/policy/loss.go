// SPDX-License-Identifier: Apache-2.0

package policy

import "deviceshare/sharing"

// ByLoss reports whether the policy scores a device by what later requests lose:
// the one that fills devices does where partitions are chosen by best fit. The
// one that spreads pods does not, since that costs places and is asked for. What
// modes are worth does not change how a policy scores the devices of one mode.
func ByLoss(p Policy, v *sharing.View) bool {
	if w, ok := p.(weighted); ok {
		p = w.Policy
	}
	_, packs := p.(binpack)
	d := v.Device
	return packs && d.Mode == sharing.MIG && d.MIG != nil && d.MIG.Policy == sharing.BestFit
}

// kept is the score by loss: two million if nothing is lost, a million less for
// as much as the device has. Memory slices nobody asked for count as that much.
func kept(v *sharing.View, c sharing.Cost) int64 {
	return 2 * (million - fraction(c.Loss, 2000*int64(v.Device.MIG.Slices)))
}

// Percent is the score that the policy gave a device by loss as the score of a
// node, 0 to 100. What the device's mode is worth is not in it: the scheduler adds
// that to the score of a node itself.
func Percent(p Policy, v *sharing.View, score int64) int64 {
	if w, ok := p.(weighted); ok {
		score -= w.points[v.Device.Mode]
	}
	return max(0, (score-million)*100/million)
}
