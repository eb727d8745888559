// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/deviceplugin/cluster"
	"deviceshare/deviceplugin/legacy"
	"deviceshare/deviceplugin/metrics"
	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// Followers are the parts that something follows for when a container starts, is
// refused or released, or when its pod has ended. The fields are set before anything
// runs.
type Followers struct {
	Metrics  *metrics.Metrics
	Report   *Reporter
	Receipts *legacy.ReceiptWriter
	Evictor  *cluster.Evictor
	Mover    *Mover
	Releaser *Releaser
	Witness  *Witness
}

// Allocated implements ContainersObserver.
func (f *Followers) Allocated() { f.Metrics.Allocated() }

// Prepared implements ContainersObserver.
func (f *Followers) Prepared(pod *corev1.Pod, c modes.Claim, took time.Duration) {
	f.Witness.Prepared(pod, &c)
	f.Receipts.Prepared(pod)
	f.Metrics.Prepared(c.Devices[0].Share.Mode, took)
}

// Refused implements ContainersObserver. A pod that was refused for good is evicted.
func (f *Followers) Refused(pod *corev1.Pod, err error) {
	f.Report.Refused(pod, err)
	var misplaced *modes.Misplaced
	if pod != nil && errors.As(err, &misplaced) {
		f.Evictor.Replace(pod, misplaced.Why)
	}
}

// Edited implements ContainersObserver.
func (f *Followers) Edited(pod *corev1.Pod, container string) { f.Report.Edited(pod, container) }

// Released implements ContainersObserver: a device may be idle now.
func (f *Followers) Released(_ sharing.Owner, err error) {
	f.Metrics.Released(err)
	f.Mover.Released()
}

// PodGone implements cluster.PodObserver.
func (f *Followers) PodGone(owner sharing.Owner) { f.Releaser.Gone(owner) }

// Placements tells what becomes of pods that were placed before a change.
type Placements struct {
	*Reporter
	Configuration Configuration
}

// Started implements cluster.Placements.
func (p Placements) Started(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning || Started(pod, p.Configuration.Device().Names())
}
