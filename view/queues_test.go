// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/sharing/factory"
	"deviceshare/view"
)

func TestAQueueLimitThatCannotBeMeantIsAFindingAndMemoryHasItsUnit(t *testing.T) {
	s := installed(t, nil)
	s.Queues = append(s.Queues, &schedulingv1beta1.Queue{
		ObjectMeta: metav1.ObjectMeta{Name: "team"},
		Spec:       schedulingv1beta1.QueueSpec{Capability: corev1.ResourceList{"volcano.sh/vgpu-memory": resource.MustParse("20Gi")}},
		Status:     schedulingv1beta1.QueueStatus{Allocated: corev1.ResourceList{"volcano.sh/vgpu-memory": resource.MustParse("271k")}},
	})
	c := view.Read(s, factory.New())
	found := ""
	for _, p := range c.Doctor("1").Problems {
		if p.On == "queue team" {
			found += p.What
		}
	}
	if !strings.Contains(found, "write it without a suffix, 20480 for 20GiB") {
		t.Errorf("the doctor finds %q", found)
	}
	if text := view.QueuesText(c.Queues(), view.Paint{}); !strings.Contains(text, "264.6 GiB") || strings.Contains(text, "271k") {
		t.Errorf("people read %s", text)
	}
}
