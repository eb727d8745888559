// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/kubelet"
	"deviceshare/sharing"
)

// strandedLook is the time between looks.
const strandedLook = 2 * time.Second

// stranded looks after the pods that were bound to this node before the device plugin started,
// while the plugin cannot read the driver. The kubelet does not ask about them then, because the
// plugin has no devices to register. They are told why they wait, and go when they have waited for
// too long. It belongs to one goroutine.
type stranded struct {
	m     *Manager
	notes kubelet.Absence
	told  map[sharing.Owner]string
	// noted is what the proxy was told last.
	noted string
}

// WatchStranded tells pods that were bound to this node before the device plugin started why they
// wait, until the driver has been read or ctx ends. notes is where a proxy reads why no plugin
// answers.
func (m *Manager) WatchStranded(ctx context.Context, notes kubelet.Absence) error {
	s := &stranded{m: m, notes: notes, told: map[sharing.Owner]string{}}
	ticker := time.NewTicker(strandedLook)
	defer ticker.Stop()
	s.updateNote("") // of an earlier process; at every start the driver takes a moment
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if !s.tellAll() {
			return nil
		}
	}
}

// tellAll looks at every pod, and returns false when the driver has been read.
func (s *stranded) tellAll() bool {
	why, is := s.m.cfg.Node.State().IsUnread()
	if !is {
		s.updateNote("")
		return false
	}
	const hope = "the container starts when the driver answers"
	why = "the devices of this node are not known: " + why
	s.updateNote(why + "; " + hope)
	begun, live := s.m.cfg.Store.ByOwner(), s.m.cfg.Pods.Live()
	names := s.m.cfg.Terms.Terms().Names
	for owner := range live {
		pod, is := s.m.cfg.Pods.Pod(owner)
		if is && len(begun[owner]) == 0 && hasPlacement(pod) && !Started(pod, names) && pod.DeletionTimestamp == nil {
			s.reportRefusal(pod, s.m.waits.refuseUntilLimit(owner, why, hope))
		}
	}
	maps.DeleteFunc(s.told, func(o sharing.Owner, _ string) bool { _, is := live[o]; return !is })
	return true
}

// updateNote tells the proxy. It may have the note of an earlier process, so that the first one
// counts.
func (s *stranded) updateNote(why string) {
	if s.noted == why && why != "" {
		return
	}
	if err := s.notes.NoteAbsence(why); err != nil {
		klog.ErrorS(err, "containers that start meanwhile are told less")
		return
	}
	s.noted = why
}

func (s *stranded) reportRefusal(pod *corev1.Pod, err error) {
	owner := sharing.Owner(pod.UID)
	if s.told[owner] == err.Error() {
		return
	}
	s.told[owner] = err.Error()
	s.m.cfg.Observer.Refused(pod, fmt.Errorf("prepare devices of pod %s/%s: %w", pod.Namespace, pod.Name, err))
}
