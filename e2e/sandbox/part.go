// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"syscall"
)

// part is one component of a running cluster, whether it is a process of this machine or runs in
// pods that the chart made.
type part interface {
	// start starts it unless it runs. It need not be ready yet.
	start(context.Context) error
	// stop ends it in an orderly way and leaves it stopped.
	stop(context.Context) error
	// kill ends its present life by SIGKILL and returns once it is over. An error if there is none.
	kill(context.Context) error
	// signal sends a signal that it survives.
	signal(context.Context, syscall.Signal) error
	// waitReady waits until it does its work. An error shows the end of its log.
	waitReady(context.Context) error
	// log is what it has written.
	log(context.Context) (string, error)
}

// part returns a component by name; the error lists the names there are.
func (c *Cluster) part(name string) (part, error) {
	if w, isInPods := c.workload(name); isInPods {
		return w, nil
	}
	return c.sup.find(name)
}
