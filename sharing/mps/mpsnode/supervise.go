// SPDX-License-Identifier: Apache-2.0

package mpsnode

import (
	"context"
	"path/filepath"
	"time"

	"deviceshare/sharing"
)

// Restart is what became of a daemon that died. Its clients have lost the device:
// every CUDA call of theirs fails until their process is started again.
type Restart struct {
	Device sharing.DeviceID
	// Err is why it could not be started again; nil when it was.
	Err error
}

// How often daemons are looked at, and how long one that does not start is left
// alone at most.
const (
	lookEvery  = time.Second
	longestGap = 30 * time.Second
)

// Run keeps every daemon that was needed alive until ctx ends. Only one goroutine
// may run it.
func (p *Preparer) Run(ctx context.Context) error {
	gaps := map[sharing.DeviceID]time.Duration{}
	next := map[sharing.DeviceID]time.Time{}
	told := map[sharing.DeviceID]string{}
	for {
		for _, id := range p.wanted() {
			if time.Now().Before(next[id]) {
				continue
			}
			died, err := p.revive(ctx, id)
			if ctx.Err() != nil {
				return nil
			}
			if err == nil {
				delete(gaps, id)
			} else {
				gaps[id] = min(max(2*gaps[id], lookEvery), longestGap)
				next[id] = time.Now().Add(gaps[id])
			}
			now := ""
			if err != nil {
				now = err.Error()
			}
			// Once per reason why it does not start, and once when it does.
			if told[id] != now || died && err == nil {
				p.tellRestart(Restart{Device: id, Err: err})
			}
			told[id] = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookEvery):
		}
	}
}

func (p *Preparer) tellRestart(r Restart) {
	if p.cfg.Restarted != nil {
		p.cfg.Restarted(r)
	}
}

// wanted lists the devices whose daemon is kept alive. What cannot be read is left
// to Prepare, which says so.
func (p *Preparer) wanted() []sharing.DeviceID {
	names, _ := p.cfg.Files.List(filepath.Join(p.cfg.Root, "devices"))
	var ids []sharing.DeviceID
	for _, name := range names {
		if r, ok, err := p.device(sharing.DeviceID(name)); err == nil && ok && r.Wanted {
			ids = append(ids, sharing.DeviceID(name))
		}
	}
	return ids
}

// revive starts a daemon again if it has died, and finishes what a start before left
// undone. One that runs with other options than are set now is left to Prepare.
func (p *Preparer) revive(ctx context.Context, id sharing.DeviceID) (died bool, err error) {
	defer p.lock(id)()
	r, ok, err := p.device(id)
	d := p.daemon(id)
	if err != nil || !ok || !r.Wanted || p.configured(d) {
		return false, err
	}
	return p.ensure(ctx, d, r)
}
