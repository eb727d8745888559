// SPDX-License-Identifier: Apache-2.0

package worth

import (
	"maps"
	"slices"

	"deviceshare/sharing"
)

// Forecasting returns the backends with forecasts that follow a mix, where a backend can learn.
// The devices are one of each class. The same mix and devices give the same forecasts.
func Forecasting(backends sharing.Backends, mix Mix, devices map[Class]*sharing.Device) sharing.Backends {
	out := slices.Clone(backends)
	for i, b := range out {
		learner, ok := b.(sharing.Learner)
		if !ok {
			continue
		}
		var demands []sharing.Demand
		for _, c := range slices.SortedFunc(maps.Keys(devices), func(a, b Class) int { return a.compareTo(&b) }) {
			if c.Mode == b.Mode() && len(demands) < maxClasses {
				demands = append(demands, sharing.Demand{Device: devices[c], Asked: mix.requestsFor(&c)})
			}
		}
		out[i] = learner.Learn(demands)
	}
	return out
}

// requestsFor returns what pods asked of a class that they accept.
func (m Mix) requestsFor(c *Class) []sharing.Asked {
	var all []sharing.Asked
	for i := range m {
		if k := &m[i].Kind; k.Devices > 0 && k.acceptsClass(c) {
			request := sharing.Request{Count: k.Devices, Memory: k.memory, Cores: k.cores}
			all = append(all, sharing.Asked{Request: request, Count: m[i].Count})
		}
	}
	return all
}
