// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"deviceshare/config/live"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/metrics"
	"deviceshare/sharing"
)

// reporter says what is wrong where users look: events on the node or the pod,
// the log, and a metric.
type reporter struct {
	node     *corev1.ObjectReference
	recorder record.EventRecorder
	metrics  *metrics.Metrics
	stop     func()

	mu      sync.Mutex
	without map[kubelet.Source]bool     // which of the kubelet's records cannot be used
	held    string                      // the last text of holds
	bad     map[sharing.DeviceID]string // what unfit told last
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
		without:  map[kubelet.Source]bool{},
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

// source reports, once per change, that one of the kubelet's records cannot be used,
// or can be again; pods are told apart by the other one meanwhile. The errors of two
// starts differ in the pod they name and are the same trouble.
func (r *reporter) source(s kubelet.Source, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if (err != nil) == r.without[s] {
		return
	}
	r.without[s] = err != nil
	r.trouble(metrics.ProblemIdentity, "KubeletRecordUnavailable", err)
}

// holds reports, once per change, that the configuration is not known, or is known
// again when why is "".
func (r *reporter) holds(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == why {
		return
	}
	r.held = why
	var err error
	if why != "" {
		err = errors.New(why)
	}
	r.trouble(metrics.ProblemConfiguration, "DeviceConfigUnknown", err)
}

// device reports that a device broke or came back.
func (r *reporter) device(id sharing.DeviceID, why string) {
	if why == "" {
		klog.InfoS("device is healthy again", "device", id)
		r.recorder.Eventf(r.node, corev1.EventTypeNormal, "GPUHealthy", "device %s is healthy again", id)
		return
	}
	klog.InfoS("device is broken", "device", id, "why", why)
	r.recorder.Eventf(r.node, corev1.EventTypeWarning, "GPUUnhealthy", "device %s gets no new pods: %s", id, short(why))
}

// unfit reports devices that cannot be used in their mode, once each.
func (r *reporter) unfit(why map[sharing.DeviceID]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, text := range why {
		if r.bad[id] != text {
			klog.ErrorS(nil, "device cannot be used in its mode", "device", id, "why", text)
			r.metrics.Problem(metrics.ProblemConfiguration)
			r.recorder.Eventf(r.node, corev1.EventTypeWarning, "GPUModeUnusable", "device %s is not offered: %s", id, text)
		}
	}
	r.bad = why
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
