// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/kube"
	commonutil "volcano.sh/volcano/pkg/util"
)

// newClient makes the client for what is not Volcano's: configuration and events.
func newClient(o *options.ServerOption) (kubernetes.Interface, error) {
	config, err := kube.BuildConfig(o.KubeClientOptions)
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(config, "deviceshare"))
	if err != nil {
		return nil, fmt.Errorf("make a client for the cluster: %w", err)
	}
	return client, nil
}

// eventReporter reports problems as events and in the log. Sending is done by the
// broadcaster's own goroutine.
type eventReporter struct {
	recorder record.EventRecorder
}

func newEventReporter(client kubernetes.Interface, schedulers []string) *eventReporter {
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	source := corev1.EventSource{Component: commonutil.GenerateComponentName(schedulers)}
	return &eventReporter{recorder: b.NewRecorder(scheme.Scheme, source)}
}

func (e *eventReporter) Report(object *corev1.ObjectReference, reason, message string) {
	klog.ErrorS(nil, message, "kind", object.Kind, "namespace", object.Namespace, "name", object.Name, "reason", reason)
	e.recorder.Event(object, corev1.EventTypeWarning, reason, message)
}

func (e *eventReporter) Tell(object *corev1.ObjectReference, reason, message string) {
	klog.InfoS(message, "kind", object.Kind, "namespace", object.Namespace, "name", object.Name, "reason", reason)
	e.recorder.Event(object, corev1.EventTypeNormal, reason, message)
}
