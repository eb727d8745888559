// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"runtime"
	"sync"

	"volcano.sh/volcano/pkg/scheduler/api"
)

// minChunk is how many nodes are worth a goroutine of their own.
const minChunk = 64

// reread returns the new state of every node that the snapshot shows changed.
// Most sessions change few of thousands of nodes, so what costs is the
// comparison; it is spread over the processors.
func (s *Store) reread(snapshot []*api.NodeInfo, settings *Settings) []*nodeState {
	touched := s.states.touchedNodes()
	size := max(minChunk, (len(snapshot)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var (
		wait   sync.WaitGroup
		chunks = make([][]*nodeState, (len(snapshot)+size-1)/size)
	)
	for i := range chunks {
		part := snapshot[i*size : min((i+1)*size, len(snapshot))]
		wait.Add(1)
		go func() {
			defer wait.Done()
			for _, info := range part {
				prev := s.nodes[info.Name]
				if _, again := touched[info.Name]; again || !prev.unchanged(info, settings) {
					chunks[i] = append(chunks[i], readNode(prev, info, settings, s.states))
				}
			}
		}()
	}
	wait.Wait()
	var fresh []*nodeState
	for _, c := range chunks {
		fresh = append(fresh, c...)
	}
	return fresh
}
