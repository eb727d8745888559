// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	events "k8s.io/client-go/tools/record"

	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/metrics"
	"deviceshare/deviceplugin/node"
)

func TestARecordOfTheKubeletIsReportedOncePerChangeWhicheverPodsStart(t *testing.T) {
	recorder := events.NewFakeRecorder(100)
	r := &Reporter{node: &corev1.ObjectReference{}, recorder: recorder, metrics: metrics.New(nil, nil)}
	r.agent = New(node.Config{Node: "n"}, r)
	missing := func(pod int) error {
		return fmt.Errorf("get resources of pod ns/p%d: %w", pod, kubelet.ErrNoPodResources)
	}
	steps := []struct {
		name   string
		source kubelet.Source
		err    error
		events int
	}{
		{"a record that serves", kubelet.SourceCheckpoint, nil, 0},
		{"a kubelet without Get", kubelet.SourcePodResources, missing(1), 1},
		{"at the start of another pod", kubelet.SourcePodResources, missing(2), 0},
		{"the other record has trouble of its own", kubelet.SourceCheckpoint, errors.New("no such file"), 1},
		{"which does not make the first one new", kubelet.SourcePodResources, missing(3), 0},
		{"the kubelet was updated", kubelet.SourcePodResources, nil, 1},
		{"and serves on", kubelet.SourcePodResources, nil, 0},
		{"and was downgraded", kubelet.SourcePodResources, missing(4), 1},
	}
	for _, s := range steps {
		r.Source(s.source, s.err)
		if n := len(recorder.Events); n != s.events {
			t.Errorf("%s: %d events, want %d", s.name, n, s.events)
		}
		for len(recorder.Events) > 0 {
			<-recorder.Events
		}
	}
}
