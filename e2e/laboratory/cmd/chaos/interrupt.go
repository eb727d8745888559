// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"sync"
	"syscall"
)

// interrupts turns signals into the ends of a run. The first SIGINT of a run that has begun ends it
// in order, with all of its checks. Any other signal stops it at once, whatever it does.
type interrupts struct {
	// enough ends the kills, stopped ends everything.
	enough, stopped context.Context

	hadEnough, stop context.CancelFunc
	say             func(string)

	mu    sync.Mutex
	begun bool
}

// newInterrupts returns one that follows no signals yet.
func newInterrupts(say func(string)) *interrupts {
	i := &interrupts{say: say}
	i.enough, i.hadEnough = context.WithCancel(context.Background())
	i.stopped, i.stop = context.WithCancel(context.Background())
	return i
}

// follow obeys signals until there are no more.
func (i *interrupts) follow(signals <-chan os.Signal) {
	for s := range signals {
		i.obey(s)
	}
}

// begin says that the run has begun: from now on there is something to end in order.
func (i *interrupts) begin() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.begun = true
}

func (i *interrupts) obey(s os.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s == syscall.SIGINT && i.begun && i.enough.Err() == nil {
		i.say("interrupted: no more kills. The last orders are waited for and everything is checked; interrupt again to stop at once")
		i.hadEnough()
		return
	}
	i.stop()
}
