// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"runtime"
	"sync"
)

// minChunk is how many nodes are worth a goroutine of their own.
const minChunk = 64

// readChangedNodes returns the new state of every node that the snapshot shows changed. Most
// sessions change few of thousands of nodes, so what costs is the comparison; it is
// spread over the processors.
func (c *Cluster) readChangedNodes(snapshot Snapshot, settings *Settings, now string) []*Node {
	touched, hosts := c.pods.touchedNodes(), snapshot.Hosts()
	size := max(minChunk, (len(hosts)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var (
		wait   sync.WaitGroup
		chunks = make([][]*Node, (len(hosts)+size-1)/size)
	)
	for i := range chunks {
		part := hosts[i*size : min((i+1)*size, len(hosts))]
		wait.Add(1)
		go func() {
			defer wait.Done()
			for _, host := range part {
				prev := c.nodes[host.Name()]
				if _, again := touched[host.Name()]; again || !prev.isCurrent(host, settings, c.claims.On(host.Name()), now) {
					chunks[i] = append(chunks[i], c.readNode(prev, host, settings, now))
				}
			}
		}()
	}
	wait.Wait()
	var fresh []*Node
	for _, chunk := range chunks {
		fresh = append(fresh, chunk...)
	}
	return fresh
}
