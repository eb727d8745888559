// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"volcano.sh/apis/pkg/apis/scheduling"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/waiting/news"
	"deviceshare/sharing"
)

// shapes is a scheduler in which each pod asks for something of its own, and every node refuses.
type shapes struct{ asked int }

func (s *shapes) Ask(t *api.TaskInfo) (Ask, bool) {
	return Ask{Request: &sharing.PodRequest{}, Shape: t.Name}, true
}

func (s *shapes) Answer(*api.TaskInfo, *nodes.Node, *api.NodeInfo) string {
	s.asked++
	return "node(s) where devices are taken"
}

// Shapes beyond the limit have their turn in later sessions; until then the rest of the text stands
// without their devices.
func TestASessionAsksDevicesForAFewShapesAndTheNextForOthers(t *testing.T) {
	scheduler := &shapes{}
	s := Session{
		Session: &framework.Session{
			Jobs: map[api.JobID]*api.JobInfo{}, Nodes: map[string]*api.NodeInfo{}, TotalResource: api.EmptyResource(),
			Queues: map[api.QueueID]*api.QueueInfo{"default": {UID: "default", Name: "default", Queue: &scheduling.Queue{
				Status: scheduling.QueueStatus{State: scheduling.QueueStateOpen}}}},
		},
		Scheduler: scheduler, Devices: map[string]*nodes.Node{}, Witness: &Witness{}, Now: 1000,
	}
	for i := range maxNodesAsked / 2 { // two shapes a session
		name := fmt.Sprintf("n%d", i)
		s.Devices[name] = &nodes.Node{Name: name}
		s.Nodes[name] = api.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for i := range 10 {
		name := fmt.Sprintf("p%d", i)
		job := api.NewJobInfo(api.JobID(name), api.NewTaskInfo(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, Status: corev1.PodStatus{Phase: corev1.PodPending},
		}))
		job.Queue = "default"
		job.SetPodGroup(&api.PodGroup{PodGroup: scheduling.PodGroup{Spec: scheduling.PodGroupSpec{MinMember: 1},
			Status: scheduling.PodGroupStatus{Phase: scheduling.PodGroupPending}}})
		s.Jobs[job.UID] = job
	}
	m := NewMemory(news.Limits{})
	for session, want := range []int{2, 4, 6, 8, 10, 10} {
		m.told = news.NewMemory(news.Limits{}) // this is about what is found
		m.Explain(s)
		withDevices := 0
		for _, job := range s.Jobs {
			for _, f := range job.NodesFitErrors {
				if strings.Contains(f.Error(), "Devices: ") {
					withDevices++
				}
			}
		}
		if withDevices != want {
			t.Errorf("session %d: %d of 10 pods are told of devices, want %d", session, withDevices, want)
		}
	}
	if want := 10 * (maxNodesAsked / 2); scheduler.asked != want {
		t.Errorf("nodes were asked %d times, want %d", scheduler.asked, want)
	}
}

func (s *shapes) RoomFor(*api.TaskInfo) string { return "" }

func (s *shapes) NoRoomFor(*api.JobInfo) string { return "" }

func (s *shapes) NewNodeFor(*api.TaskInfo) string { return "" }
