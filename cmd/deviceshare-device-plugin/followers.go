// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"deviceshare/config/live"
	"deviceshare/deviceplugin/containers"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/node"
	"deviceshare/deviceplugin/settings"
	"deviceshare/sharing"
)

// followers pass on what a part tells to the parts that something follows for.
type followers struct{ *plugin }

func (f followers) Allocated() { f.metrics.Allocated() }

func (f followers) Prepared(pod *corev1.Pod, c modes.Claim, took time.Duration) {
	f.oversight.Prepared(pod, &c)
	f.receipts.Prepared(pod)
	f.metrics.Prepared(c.Devices[0].Share.Mode, took)
}

// Refused implements containers.Observer. A pod that was refused for good is evicted.
func (f followers) Refused(pod *corev1.Pod, err error) {
	f.report.Refused(pod, err)
	var misplaced *modes.Misplaced
	if pod != nil && errors.As(err, &misplaced) {
		f.evictor.Replace(pod, misplaced.Why)
	}
}

func (f followers) Edited(pod *corev1.Pod, container string) { f.report.Edited(pod, container) }

// Released implements containers.Observer: a device may be idle now.
func (f followers) Released(_ sharing.Owner, err error) {
	f.metrics.Released(err)
	f.mover.Released()
}

func (f followers) PodGone(owner sharing.Owner) { f.releaser.Gone(owner) }

func (f followers) Started(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning || containers.Started(pod, f.settings.Device().Names())
}

func (f followers) Evicted(pod *corev1.Pod, why string) { f.sendMisplaced(pod, node.Evicted, why) }

func (f followers) Kept(pod *corev1.Pod, why string) { f.sendMisplaced(pod, node.Kept, why) }

func (f followers) sendMisplaced(pod *corev1.Pod, fate node.Fate, why string) {
	f.agent.Send(node.Misplaced{Owner: sharing.Owner(pod.UID), Namespace: pod.Namespace, Pod: pod.Name, Fate: fate, Why: why})
}

// SourceChanged implements legacy.Observer: the amounts come from somewhere else.
func (f followers) SourceChanged() { f.agent.Wake() }

func (f followers) InTransition(obstacle error) { f.agent.SetPart(node.PartAmounts, obstacle) }

// useRecord takes in whether one of the kubelet's records can be used; pods are told apart by the
// other one meanwhile.
func (f followers) useRecord(s kubelet.Source, err error) {
	part := node.PartResources
	if s == kubelet.SourceCheckpoint {
		part = node.PartKubelet
	}
	f.agent.SetPart(part, err)
}

// applyConfiguration takes in a new version of the ConfigMaps. Names of resources and units are no
// part of the state, so its readers are woken in any case.
func (f followers) applyConfiguration(v live.Value) {
	klog.InfoS("configuration changed", "device", v.DeviceFrom, "node", v.NodeFrom)
	f.agent.Send(settings.Event(v, f.o.nodeName))
	f.agent.Wake()
}

func (f followers) countFailure(mode sharing.Mode, manual bool) {
	result := "failure"
	if manual {
		result = "manual"
	}
	f.metrics.Moved(mode, result)
}
