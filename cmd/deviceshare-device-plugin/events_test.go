// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"deviceshare/deviceplugin/identity"
	"deviceshare/deviceplugin/monitor"
)

func TestARecordOfTheKubeletIsReportedOncePerChangeWhicheverPodsStart(t *testing.T) {
	recorder := record.NewFakeRecorder(100)
	r := &reporter{node: &corev1.ObjectReference{}, recorder: recorder, metrics: monitor.New(monitor.States{}), without: map[identity.Source]bool{}}
	missing := func(pod int) error {
		return fmt.Errorf("get resources of pod ns/p%d: %w", pod, identity.ErrUnavailable)
	}
	steps := []struct {
		name   string
		source identity.Source
		err    error
		events int
	}{
		{"a record that serves", identity.Checkpoint, nil, 0},
		{"a kubelet without Get", identity.Podresources, missing(1), 1},
		{"at the start of another pod", identity.Podresources, missing(2), 0},
		{"the other record has trouble of its own", identity.Checkpoint, errors.New("no such file"), 1},
		{"which does not make the first one new", identity.Podresources, missing(3), 0},
		{"the kubelet was updated", identity.Podresources, nil, 1},
		{"and serves on", identity.Podresources, nil, 0},
		{"and was downgraded", identity.Podresources, missing(4), 1},
	}
	for _, s := range steps {
		r.source(s.source, s.err)
		if n := len(recorder.Events); n != s.events {
			t.Errorf("%s: %d events, want %d", s.name, n, s.events)
		}
		for len(recorder.Events) > 0 {
			<-recorder.Events
		}
	}
}
