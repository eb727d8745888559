// SPDX-License-Identifier: Apache-2.0

package oversight

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/node"
)

// lookAtRuntime is the time between looks at how the node's runtimes are set.
const lookAtRuntime = 10 * time.Second

// bypassWatch looks whether the node gives devices to containers that ask for none, past the
// scheduler and past this plugin. It prevents nothing: these are settings of the node, which
// its administrator is told about.
type bypassWatch struct{ cfg *Config }

func (b *bypassWatch) run(ctx context.Context, pause time.Duration) error {
	b.checkRuntime(ctx)
	return lookEvery(ctx, pause, func() { b.checkRuntime(ctx) })
}

// checkRuntime takes in how the node is set. What cannot be known changes nothing.
func (b *bypassWatch) checkRuntime(ctx context.Context) {
	switch why, does, err := b.cfg.Runtime.GivesUnasked(ctx); {
	case errors.Is(err, cdi.ErrRuntimeSilent):
	case err != nil:
		klog.V(2).InfoS("the container runtime does not say what it starts containers with", "why", err)
	case does:
		b.cfg.Agent.Send(node.Troubled{Part: node.PartNVIDIARuntime, Why: why})
	default:
		b.cfg.Agent.Send(node.Recovered{Part: node.PartNVIDIARuntime})
	}
}
