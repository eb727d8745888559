// SPDX-License-Identifier: Apache-2.0

package reporting

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/metrics"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing/events"
)

// Tell is told what became different, as agent.New asks.
func (r *Reporter) Tell(_, _ node.State, notices []node.Notice) {
	for i := range notices {
		n := &notices[i]
		switch n.Kind {
		case node.DeviceBroke, node.DeviceWorks, node.ModeUnusable, node.ModeInterrupted, node.ModeRestored:
			r.reportDevice(n)
		case node.ModeReached, node.ModeWaits, node.ModeFailed, node.ModeByHand:
			r.reportMode(n)
		case node.ConfigUnusable:
			r.reportTrouble(metrics.ProblemConfiguration, events.DeviceConfigUnknown, errors.New(n.Detail))
		case node.ConfigUsable:
			r.reportTrouble(metrics.ProblemConfiguration, events.DeviceConfigUnknown, nil)
		case node.PodMisplaced:
			r.reportMisplaced(&n.Pod)
		case node.PartFailed, node.PartWorks:
			r.reportPart(n)
		case node.OfferExceeded, node.OfferMet:
			r.reportOffer(n)
		case node.DriverPlanned, node.DriverClaimed, node.DriverReturned:
			r.reportClaim(n)
		case node.DeviceContested, node.DeviceUncontested:
			r.reportContest(n)
		case node.DeviceUnlicensed, node.DeviceLicensed:
			r.reportLicence(n)
		}
	}
}

func (r *Reporter) reportMisplaced(m *node.Misplaced) {
	r.metrics.Misplaced(m.Fate.String())
	pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: m.Namespace, Name: m.Pod, UID: types.UID(m.Owner)}
	reason, text := events.DevicePlacementRefused, "this node cannot start the pod as it was placed: "
	if m.Fate == node.Evicted {
		reason, text = events.DevicePlacedAnew, "evicting the pod so that it is placed anew, since this node cannot start it as it was placed: "
	}
	r.recorder.Event(pod, corev1.EventTypeWarning, reason, text+truncateMessage(m.Why))
}

// reportOffer reports what pods hold beyond what the node wants to offer, to the node and to each
// of those pods.
func (r *Reporter) reportOffer(n *node.Notice) {
	what := "memory of this node"
	if n.Device != "" {
		what = "device " + string(n.Device)
	}
	if n.Kind == node.OfferMet {
		r.recorder.Eventf(r.node, corev1.EventTypeNormal, events.DeviceOfferExceeded+events.Resolved, "%s: no longer so: %s", what, n.Detail)
		return
	}
	klog.InfoS("pods hold more than is to be offered", "device", n.Device, "why", n.Detail, "pods", len(n.Pods))
	r.recorder.Event(r.node, corev1.EventTypeNormal, events.DeviceOfferExceeded, truncateMessage(fmt.Sprintf(
		"%s: %s. %d pods keep what they hold until they end, and the kubelet is offered that much longer: %s",
		what, n.Detail, len(n.Pods), joinNames(n.Pods))))
	for i := range n.Pods {
		pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: n.Pods[i].Namespace, Name: n.Pods[i].Pod, UID: types.UID(n.Pods[i].Owner)}
		r.recorder.Eventf(pod, corev1.EventTypeNormal, events.DeviceShareKept, "%s: %s. This pod keeps what it has until it ends", what, n.Detail)
	}
}

// reportClaim reports what others want of the driver, and which pods stand in their way.
func (r *Reporter) reportClaim(n *node.Notice) {
	holders := ""
	if len(n.Pods) > 0 {
		holders = fmt.Sprintf(". The driver cannot be unloaded before these pods have left: %s", joinNames(n.Pods))
	}
	switch n.Kind {
	case node.DriverPlanned:
		r.recorder.Event(r.node, corev1.EventTypeNormal, events.GPUDriverUpgradePlanned,
			truncateMessage("NVIDIA's GPU operator will replace the driver of this node"+holders))
	case node.DriverClaimed:
		klog.InfoS("the driver is claimed by others", "why", n.Detail, "pods", len(n.Pods))
		r.recorder.Event(r.node, corev1.EventTypeNormal, events.GPUDriverClaimed, truncateMessage(n.Detail+holders))
	case node.DriverReturned:
		r.recorder.Event(r.node, corev1.EventTypeNormal, events.GPUDriverClaimed+events.Resolved, "the devices take new pods again, as far as the driver works")
	}
}

// reportContest reports a device that somebody else offers, too, and how to end that.
func (r *Reporter) reportContest(n *node.Notice) {
	if n.Kind == node.DeviceUncontested {
		r.recorder.Eventf(r.node, corev1.EventTypeNormal, events.GPUOfferedTwice+events.Resolved, "device %s (index %d) is offered once again", n.Device, n.Index)
		return
	}
	holders := ""
	if len(n.Pods) > 0 {
		holders = ". These pods have shares of it: " + joinNames(n.Pods)
	}
	klog.InfoS("a device is offered twice", "device", n.Device, "by", n.Detail)
	r.recorder.Event(r.node, corev1.EventTypeWarning, events.GPUOfferedTwice, truncateMessage(fmt.Sprintf(
		"device %s (index %d): %s, and would give it away a second time. Have one of the two leave it: ours with filterdevices in the node configuration, "+
			"or theirs, NVIDIA's with kubectl label node %s nvidia.com/gpu.deploy.device-plugin=false (its DRA driver: nvidia.com/gpu.deploy.dra-driver=false)%s",
		n.Device, n.Index, n.Detail, r.node.Name, holders)))
}

// reportLicence reports a vGPU that lacks its licence, and where to look.
func (r *Reporter) reportLicence(n *node.Notice) {
	if n.Kind == node.DeviceLicensed {
		r.recorder.Eventf(r.node, corev1.EventTypeNormal, events.GPULicenceMissing+events.Resolved, "device %s (index %d): nothing is wrong with its licence any more", n.Device, n.Index)
		return
	}
	why := n.Detail
	if n.Ends != 0 {
		why += " (" + time.Unix(n.Ends, 0).UTC().Format(time.RFC3339) + ")"
	}
	klog.InfoS("a vGPU lacks its licence", "device", n.Device, "why", why)
	r.recorder.Eventf(r.node, corev1.EventTypeWarning, events.GPULicenceMissing,
		"device %s (index %d) is a vGPU, and %s: NVIDIA's driver slows down what runs on a vGPU without one, and ends it after a time. "+
			"It takes pods all the same. Look at nvidia-gridd on the node, and at the license server", n.Device, n.Index, why)
}

// joinNames is a list of pods for people.
func joinNames(pods []node.Holding) string {
	names := make([]string, 0, len(pods))
	for i := range pods {
		names = append(names, pods[i].Namespace+"/"+pods[i].Pod)
	}
	return strings.Join(names, ", ")
}

func (r *Reporter) reportPart(n *node.Notice) {
	if n.Part == node.PartAmounts {
		// A passing state and no trouble: its end is no news.
		if n.Kind == node.PartFailed {
			klog.InfoS("memory and cores cannot simply be in the node's capacity", "why", n.Detail)
			r.recorder.Event(r.node, corev1.EventTypeWarning, events.DeviceAmountsInTransition, truncateMessage(n.Detail))
		}
		return
	}
	var err error
	if n.Kind == node.PartFailed {
		err = errors.New(n.Detail)
	}
	kind, reason := problemOf(n.Part)
	r.reportTrouble(kind, reason, err)
}

// problemOf is how trouble of a part is counted and called.
func problemOf(p node.Part) (kind, reason string) {
	switch p {
	case node.PartDriver:
		return metrics.ProblemDriver, events.GPUDriverUnavailable
	case node.PartPublishing:
		return metrics.ProblemPublish, events.DevicePublishFailed
	case node.PartRuntime:
		return metrics.ProblemRuntime, events.ContainerRuntimeUnfit
	case node.PartNVIDIARuntime:
		return metrics.ProblemRuntime, events.NVIDIARuntimeUnfit
	}
	return metrics.ProblemIdentity, events.KubeletRecordUnavailable
}

func (r *Reporter) reportDevice(n *node.Notice) {
	switch n.Kind {
	case node.DeviceBroke:
		klog.InfoS("device is broken", "device", n.Device, "why", n.Detail)
		r.recorder.Eventf(r.node, corev1.EventTypeWarning, events.GPUUnhealthy, "device %s gets no new pods: %s", n.Device, truncateMessage(n.Detail))
	case node.DeviceWorks:
		klog.InfoS("device is healthy again", "device", n.Device)
		r.recorder.Eventf(r.node, corev1.EventTypeNormal, events.GPUHealthy, "device %s is healthy again", n.Device)
	case node.ModeUnusable:
		klog.ErrorS(nil, "device cannot be used in its mode", "device", n.Device, "why", n.Detail)
		r.metrics.Problem(metrics.ProblemConfiguration)
		r.recorder.Eventf(r.node, corev1.EventTypeWarning, events.GPUModeUnusable, "device %s is not offered: %s", n.Device, n.Detail)
	case node.ModeInterrupted:
		r.reportModeProblem(events.GPUModeInterrupted, "device %s (index %d) takes no new pods in mode %s: %s", n.Device, n.Index, n.Mode, truncateMessage(n.Detail))
	case node.ModeRestored:
		r.recorder.Eventf(r.node, corev1.EventTypeNormal, events.GPUModeRestored, "device %s (index %d) takes pods in mode %s again", n.Device, n.Index, n.Mode)
	}
}

func (r *Reporter) reportMode(n *node.Notice) {
	switch n.Kind {
	case node.ModeReached:
		klog.InfoS("device is in its mode", "device", n.Device, "mode", n.Mode)
		r.metrics.Moved(n.Mode, "success")
		r.recorder.Eventf(r.node, corev1.EventTypeNormal, events.GPUModeChanged, "device %s (index %d) is in mode %s", n.Device, n.Index, n.Mode)
	case node.ModeWaits:
		klog.InfoS("device keeps its mode for now", "device", n.Device, "wanted", n.Mode, "why", n.Detail)
		r.recorder.Eventf(r.node, corev1.EventTypeNormal, events.GPUModeWaiting, "device %s (index %d) takes no new pods: %s", n.Device, n.Index, truncateMessage(n.Detail))
		r.notifyHolders(n)
	case node.ModeFailed:
		r.reportModeProblem(events.GPUModeChangeFailed, "device %s (index %d) cannot be brought into mode %s and takes no pods: %s", n.Device, n.Index, n.Mode, truncateMessage(n.Detail))
	case node.ModeByHand:
		r.reportModeProblem(events.GPUModeNeedsAdministrator, "device %s (index %d) cannot be brought into mode %s and takes no pods: %s", n.Device, n.Index, n.Mode, truncateMessage(n.Detail))
	}
}

// notifyHolders tells every pod that keeps a device in another mode than the wanted one.
func (r *Reporter) notifyHolders(n *node.Notice) {
	for _, h := range n.Holders {
		stays := "stays in mode " + string(h.Mode)
		if h.Mode == "" {
			stays = "stays as it is"
		}
		if pod, live := r.pods.Pod(h.Owner); live && h.Mode != n.Mode {
			r.recorder.Eventf(pod, corev1.EventTypeNormal, events.DeviceModeKept,
				"device %s is to be in mode %s and %s until nobody holds it any more, this pod included", n.Device, n.Mode, stays)
		}
	}
}
