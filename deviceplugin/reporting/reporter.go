// SPDX-License-Identifier: Apache-2.0

// Package reporting tells others about a node: people by events, the log and metrics, and
// schedulers by the node object.
package reporting

import (
	"errors"
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
	"deviceshare/config/signing"
	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/cluster"
	"deviceshare/deviceplugin/metrics"
	"deviceshare/deviceplugin/metrics/occupancy"
	"deviceshare/deviceplugin/modes/mps"
	"deviceshare/sharing"
	"deviceshare/sharing/events"
)

// Reporter says what is wrong where users look: events on the node or the pod,
// the log, and a metric.
type Reporter struct {
	node     *corev1.ObjectReference
	recorder record.EventRecorder
	stop     func()

	// Set by Attach.

	metrics *metrics.Metrics
	pods    *cluster.Pods
	records *checkpoint.Store
}

// NewReporter returns a reporter of a node. Attach must follow.
func NewReporter(client kubernetes.Interface, node string) *Reporter {
	broadcaster := record.NewBroadcasterWithCorrelatorOptions(record.CorrelatorOptions{SpamKeyFunc: budgetOf})
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return &Reporter{
		// The kubelet too uses the name as the UID in a node's record.
		node:     &corev1.ObjectReference{Kind: "Node", Name: node, UID: types.UID(node)},
		recorder: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "deviceshare-device-plugin", Host: node}),
		stop:     broadcaster.Shutdown,
	}
}

// budgetOf is the key of those events that are sent less often when there are many of them. Each
// reason has its own: a container that is refused every few seconds would use up the budget of its
// pod, and the pod's eviction would go unsaid.
func budgetOf(e *corev1.Event) string {
	o := &e.InvolvedObject
	return strings.Join([]string{e.Source.Component, e.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID), e.Reason}, "/")
}

// Attach gives the reporter what is made after it. It is called once, before anything
// runs.
func (r *Reporter) Attach(m *metrics.Metrics, pods *cluster.Pods, records *checkpoint.Store) {
	r.metrics, r.pods, r.records = m, pods, records
}

// Stop ends the reporter.
func (r *Reporter) Stop() { r.stop() }

// reportTrouble reports that something of the node fails, or works again when err is
// nil.
func (r *Reporter) reportTrouble(kind, reason string, err error) {
	if err == nil {
		klog.InfoS("works again", "part", kind)
		r.recorder.Event(r.node, corev1.EventTypeNormal, reason+events.Resolved, "works again")
		return
	}
	klog.ErrorS(err, "trouble", "part", kind)
	r.metrics.Problem(kind)
	r.recorder.Event(r.node, corev1.EventTypeWarning, reason, truncateMessage(err.Error()))
}

// Checkpoint reports a checkpoint that cannot be used, if there is an error.
func (r *Reporter) Checkpoint(err error) {
	if err != nil {
		r.reportTrouble(metrics.ProblemCheckpoint, events.DeviceCheckpointBroken, err)
	}
}

// NodesMissing implements cdi.NodesObserver.
func (r *Reporter) NodesMissing(err error) {
	r.reportTrouble(metrics.ProblemDriver, events.DeviceNodesMissing, err)
}

// ConfigNotKept reports that a configuration cannot be kept for the next start.
func (r *Reporter) ConfigNotKept(err error) {
	r.reportTrouble(metrics.ProblemConfiguration, events.DeviceConfigNotKept, err)
}

// Reconcile reports that the node cannot be repaired.
func (r *Reporter) Reconcile(err error) {
	r.reportTrouble(metrics.ProblemReconcile, events.DeviceReconcileFailed, err)
}

// UsageUnread reports that a container's use of its devices cannot be read.
func (r *Reporter) UsageUnread(_ checkpoint.Record, err error) {
	klog.ErrorS(err, "a container's use of its devices cannot be read")
	r.metrics.Problem(metrics.ProblemUsage)
}

// reportModeProblem tells about something wrong with the node and counts it.
func (r *Reporter) reportModeProblem(reason, format string, args ...any) {
	r.metrics.Problem(metrics.ProblemMode)
	r.recorder.Eventf(r.node, corev1.EventTypeWarning, reason, format, args...)
}

// Configuration reports every mistake of one version of a ConfigMap.
func (r *Reporter) Configuration(rep live.Report) {
	lines := make([]string, 0, len(rep.Problems))
	for _, p := range rep.Problems {
		lines = append(lines, p.String())
	}
	text := fmt.Sprintf("ConfigMap %s/%s: %s; the last good version, if this node knows one, stays in force",
		rep.Source.Namespace, rep.Source.Name, strings.Join(lines, "; "))
	klog.ErrorS(nil, text, "version", rep.Source.Version)
	r.metrics.Problem(metrics.ProblemConfiguration)
	r.recorder.Event(r.node, corev1.EventTypeWarning, events.DeviceConfigInvalid, truncateMessage(text))
}

// Refused reports a container that may not start.
func (r *Reporter) Refused(pod *corev1.Pod, err error) {
	r.metrics.Refused()
	if pod == nil {
		r.recorder.Event(r.node, corev1.EventTypeWarning, events.DevicePrepareFailed, truncateMessage(err.Error()))
		return
	}
	reason := events.DevicePrepareFailed
	if unsigned := (*signing.Unsigned)(nil); errors.As(err, &unsigned) {
		reason = events.DevicePlacementUnsigned
	}
	r.recorder.Event(pod, corev1.EventTypeWarning, reason, truncateMessage(err.Error()))
}

// Edited reports annotations that somebody has changed since a container began.
func (r *Reporter) Edited(pod *corev1.Pod, container string) {
	klog.InfoS("the annotations give a container something else than it has; it keeps what it has", "pod", klog.KObj(pod), "container", container)
	r.recorder.Eventf(pod, corev1.EventTypeWarning, events.DevicePlacementEdited,
		"the pod's annotations give container %s something else than it got when it began; it keeps what it got", container)
}

// Unenforced reports a container that was ended because it had nothing of what it was given.
func (r *Reporter) Unenforced(pod *corev1.Pod, container, why string) {
	r.recorder.Event(pod, corev1.EventTypeWarning, events.DeviceInjectionIgnored, truncateMessage(fmt.Sprintf("container %s was ended: %s", container, why)))
}

// Unlimited reports a container with a process that goes past the library.
func (r *Reporter) Unlimited(pod *corev1.Pod, container, what string) {
	r.recorder.Event(pod, corev1.EventTypeWarning, events.ProcessUnlimited, truncateMessage(fmt.Sprintf("container %s: %s. "+
		"Programs that are static, for musl, or started past the loader can have a whole device, or a partition in mode mig", container, what)))
}

// Stranger implements oversight.Observer.
func (r *Reporter) Stranger(pod *corev1.Pod, use occupancy.Use) {
	klog.InfoS("a device is used without a share", "pod", klog.KRef(use.Namespace, use.Pod), "use", use.String())
	if pod == nil {
		r.recorder.Event(r.node, corev1.EventTypeWarning, events.DeviceUsedWithoutShare, truncateMessage(use.String()))
		return
	}
	r.recorder.Event(pod, corev1.EventTypeWarning, events.DeviceUsedWithoutShare, truncateMessage(use.String()+
		": ask for volcano.sh/vgpu-number, so that the scheduler counts it"))
}

// DaemonDied tells the node, and every pod that was a client, that an MPS control
// daemon died. It may be called for several devices at the same time. It must not wait
// for a preparer, which may be the caller.
func (r *Reporter) DaemonDied(died mps.Restart) {
	r.metrics.Problem(metrics.ProblemMPS)
	what := "it runs again; processes that used it get CUDA errors until they are started again"
	if died.Err != nil {
		what = "it does not start again: " + died.Err.Error()
	}
	how := ""
	if died.How != "" {
		how = " (" + died.How + ")"
	}
	text := fmt.Sprintf("the MPS control daemon of device %s died%s: %s", died.Device, how, what)
	klog.ErrorS(died.Err, "MPS control daemon died", "device", died.Device)
	r.recorder.Event(r.node, corev1.EventTypeWarning, events.MPSDaemonDied, truncateMessage(text))
	told := map[sharing.Owner]bool{}
	for _, record := range r.records.All() {
		if record.Mode != sharing.MPS || told[record.Owner] {
			continue
		}
		for _, d := range record.Devices {
			if pod, live := r.pods.Pod(record.Owner); live && d.Device == died.Device {
				r.recorder.Event(pod, corev1.EventTypeWarning, events.MPSDaemonDied, truncateMessage(text))
				told[record.Owner] = true
			}
		}
	}
}

// truncateMessage keeps a message within the 1024 bytes of an event.
func truncateMessage(text string) string {
	const most = 1000
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " ..."
}
