// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"slices"
	"time"

	"deviceshare/view"
)

// How often the state of the cluster is noted, and for how long it is kept: an hour, in memory.
const (
	sampleEvery = 5 * time.Second
	keptSamples = int(time.Hour / sampleEvery)
)

// Sample is the cluster at one moment of the time line.
type Sample struct {
	// At is in seconds since 1970.
	At int64 `json:"at"`
	// Memory and Cores are what is promised, in thousandths.
	Memory  int `json:"memory"`
	Cores   int `json:"cores"`
	Waiting int `json:"waiting"`
}

// history is the last hour, the oldest sample first.
type history struct{ samples []Sample }

// addSample notes a sample and forgets the oldest beyond an hour's worth.
func (h *history) addSample(at time.Time, o *view.Overview) {
	s := Sample{At: at.Unix(), Memory: o.Total.MemoryPart, Cores: o.Total.CoresPart, Waiting: o.Waiting}
	if len(h.samples) == keptSamples {
		h.samples = slices.Delete(h.samples, 0, 1)
	}
	h.samples = append(h.samples, s)
}

// samplesAfter are the samples since a time, in seconds since 1970.
func (h *history) samplesAfter(at int64) []Sample {
	i, _ := slices.BinarySearchFunc(h.samples, at+1, func(s Sample, at int64) int { return cmp.Compare(s.At, at) })
	return append([]Sample{}, h.samples[i:]...)
}
