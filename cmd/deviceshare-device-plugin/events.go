// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"deviceshare/config/live"
	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/cluster"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/metrics"
	"deviceshare/deviceplugin/node"
)

// reporter says what is wrong where users look: events on the node or the pod,
// the log, and a metric.
type reporter struct {
	node     *corev1.ObjectReference
	recorder record.EventRecorder
	metrics  *metrics.Metrics
	stop     func()

	agent *agent.Agent
	pods  *cluster.Pods
}

func newReporter(client kubernetes.Interface, node string, metrics *metrics.Metrics) *reporter {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return &reporter{
		// The kubelet too uses the name as the UID in a node's events.
		node:     &corev1.ObjectReference{Kind: "Node", Name: node, UID: types.UID(node)},
		recorder: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "deviceshare-device-plugin", Host: node}),
		metrics:  metrics,
		stop:     broadcaster.Shutdown,
	}
}

// trouble reports that something of the node fails, or works again when err is
// nil.
func (r *reporter) trouble(kind, reason string, err error) {
	if err == nil {
		klog.InfoS("works again", "part", kind)
		r.recorder.Event(r.node, corev1.EventTypeNormal, reason+"Resolved", "works again")
		return
	}
	klog.ErrorS(err, "trouble", "part", kind)
	r.metrics.Problem(kind)
	r.recorder.Event(r.node, corev1.EventTypeWarning, reason, short(err.Error()))
}

// source takes in whether one of the kubelet's records can be used; pods are told
// apart by the other one meanwhile.
func (r *reporter) source(s kubelet.Source, err error) { r.part(partOf(s), err) }

// partOf is a record of the kubelet as the model of the node names it.
func partOf(s kubelet.Source) node.Part {
	if s == kubelet.SourceCheckpoint {
		return node.PartKubelet
	}
	return node.PartResources
}

// part takes in whether a part of the surroundings works. It is told when it changes.
func (r *reporter) part(p node.Part, err error) {
	if err != nil {
		r.agent.Send(node.Troubled{Part: p, Why: err.Error()})
		return
	}
	r.agent.Send(node.Recovered{Part: p})
}

// problem tells about something wrong with the node and counts it.
func (r *reporter) problem(reason, format string, args ...any) {
	r.metrics.Problem(metrics.ProblemMode)
	r.recorder.Eventf(r.node, corev1.EventTypeWarning, reason, format, args...)
}

// configuration reports every mistake of one version of a ConfigMap.
func (r *reporter) configuration(rep live.Report) {
	lines := make([]string, 0, len(rep.Problems))
	for _, p := range rep.Problems {
		lines = append(lines, p.String())
	}
	text := fmt.Sprintf("ConfigMap %s/%s: %s; the last good version, if this node knows one, stays in force",
		rep.Source.Namespace, rep.Source.Name, strings.Join(lines, "; "))
	klog.ErrorS(nil, text, "version", rep.Source.Version)
	r.metrics.Problem(metrics.ProblemConfiguration)
	r.recorder.Event(r.node, corev1.EventTypeWarning, "DeviceConfigInvalid", short(text))
}

// refused reports a container that may not start.
func (r *reporter) refused(pod *corev1.Pod, err error) {
	r.metrics.Refused()
	if pod == nil {
		r.recorder.Event(r.node, corev1.EventTypeWarning, "DevicePrepareFailed", short(err.Error()))
		return
	}
	r.recorder.Event(pod, corev1.EventTypeWarning, "DevicePrepareFailed", short(err.Error()))
}

// short keeps a message within the 1024 bytes of an event.
func short(text string) string {
	const most = 1000
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " ..."
}
