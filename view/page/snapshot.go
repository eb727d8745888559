// SPDX-License-Identifier: Apache-2.0

package page

import (
	"sync"
	"time"

	"deviceshare/sharing/factory"
	"deviceshare/view"
	"deviceshare/view/capture"
)

// mostWhys bounds for how many waiting pods it is told at once why.
const mostWhys = 10

// mostCards bounds how many nodes are sent at once.
const mostCards = 60

// snapshot is one state of the cluster, read. Safe for concurrent use.
type snapshot struct {
	// version tells states apart.
	version  int64
	taken    time.Time
	overview view.Overview
	devices  []view.NodeDevices

	// mu guards the cluster: finding the pods that wait takes long in a large one, so that it is
	// done for one reader at a time, and once for each page of the list.
	mu      sync.Mutex
	cluster *view.Cluster
	whys    map[int]whys
}

// whys are some waiting pods of so many.
type whys struct {
	list  []view.Waiting
	total int
}

func newSnapshot(version int64, s *capture.State) *snapshot {
	cluster := view.Read(s, factory.New())
	devices := cluster.Devices("")
	return &snapshot{
		version: version, taken: s.Taken, cluster: cluster, devices: devices, overview: cluster.Overview(devices), whys: map[int]whys{},
	}
}

// waitingPods lists mostWhys pods that wait.
func (s *snapshot) waitingPods(offset int) whys {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, known := s.whys[offset]
	if !known {
		w.list, w.total = s.cluster.Waiting(offset, mostWhys)
		if len(w.list) > 0 {
			s.whys[offset] = w
		}
	}
	return w
}
