// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"deviceshare/deviceplugin/host"
	"deviceshare/sharing"
)

// Restart reports a daemon that died. Its clients have lost the device: every CUDA call
// fails until the client process is restarted.
type Restart struct {
	Device sharing.DeviceID
	// How says how its process ended; empty where that is not known.
	How string
	// Err is why the daemon could not be restarted; nil if it was.
	Err error
}

// How often daemons are checked, the longest backoff for a daemon that does not start, how
// often a daemon is probed, and after how many failed probes in a row it counts as dead:
// it may only be busy, and ending it ends its clients.
const (
	lookEvery  = time.Second
	longestGap = 30 * time.Second
	askEvery   = 5 * time.Second
	silentMost = 3
)

// watch is what the supervisor knows of one daemon.
type watch struct {
	busy atomic.Bool // somebody has the rest
	gap  time.Duration
	next time.Time // not before
	told string
	// ask is when the daemon is probed next, silent the number of failed probes in a row.
	ask    time.Time
	silent int
}

// Run keeps every daemon that was needed alive until ctx ends. Only one goroutine
// may run it.
func (p *Preparer) Run(ctx context.Context) error {
	p.removeUnfinished()
	watches := map[sharing.DeviceID]*watch{}
	var looks sync.WaitGroup
	defer looks.Wait()
	for {
		for _, id := range p.wantedDevices() {
			w := watches[id]
			if w == nil {
				w = &watch{}
				watches[id] = w
			}
			// Each for itself: a container can make its own device's daemon slow.
			if w.busy.CompareAndSwap(false, true) {
				looks.Go(func() {
					defer w.busy.Store(false)
					p.checkDaemon(ctx, id, w)
				})
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookEvery):
		}
	}
}

func (p *Preparer) checkDaemon(ctx context.Context, id sharing.DeviceID, w *watch) {
	if time.Now().Before(w.next) {
		return
	}
	died, err := p.reviveDaemon(ctx, id, w)
	if ctx.Err() != nil {
		return
	}
	now := ""
	if err == nil {
		w.gap = 0
	} else {
		now = err.Error()
		w.gap = min(max(2*w.gap, lookEvery), longestGap)
		w.next = time.Now().Add(w.gap)
	}
	// Once per reason why it does not start, and once when it does.
	if w.told != now || died && err == nil {
		p.tellRestart(Restart{Device: id, Err: err})
	}
	w.told = now
}

func (p *Preparer) tellRestart(r Restart) {
	if how, known := p.endings.LoadAndDelete(r.Device); known {
		r.How = how.(string)
	}
	if p.cfg.Restarted != nil {
		p.cfg.Restarted(r)
	}
}

// wantedDevices lists the devices whose daemon is kept running. Records that cannot be read are
// skipped; Prepare reports them.
func (p *Preparer) wantedDevices() []sharing.DeviceID {
	names, _ := p.cfg.Files.List(filepath.Join(p.cfg.Root, "devices"))
	var ids []sharing.DeviceID
	for _, name := range names {
		if _, unfinished := host.UnfinishedOf(name); unfinished {
			continue // the device has its file beside it, or none
		}
		if r, ok, err := p.readDeviceRecord(sharing.DeviceID(name)); err == nil && ok && r.Wanted {
			ids = append(ids, sharing.DeviceID(name))
		}
	}
	return ids
}

// removeUnfinished removes temporary files of records that a crash left.
func (p *Preparer) removeUnfinished() {
	dir := filepath.Join(p.cfg.Root, "devices")
	names, _ := p.cfg.Files.List(dir)
	for _, name := range names {
		if id, ok := host.UnfinishedOf(name); ok {
			// Nobody writes this device's record meanwhile. What stays does no harm.
			unlock := p.lockDevice(sharing.DeviceID(id))
			_ = p.cfg.Files.Remove(filepath.Join(dir, name))
			unlock()
		}
	}
}

// reviveDaemon restarts a daemon that has died or does not answer while containers have its device,
// and finishes a start that was interrupted. A daemon that runs with other options than those
// configured now is left to Prepare.
func (p *Preparer) reviveDaemon(ctx context.Context, id sharing.DeviceID, w *watch) (died bool, err error) {
	defer p.lockDevice(id)()
	r, ok, err := p.readDeviceRecord(id)
	if err != nil || !ok || !r.Wanted {
		return false, err
	}
	d := p.daemonFor(id)
	_ = p.cfg.Space.Trim(d.Log(), logSize) // a log that cannot be cut says nothing about the daemon
	complete := p.isConfigured(d)
	if complete && time.Now().Before(w.ask) {
		return false, nil
	}
	if complete {
		w.ask = time.Now().Add(askEvery)
		if _, err = p.sendCommand(ctx, d, "get_server_list"); errors.Is(err, ErrNotAsked) {
			return false, nil // it lives; the next start of a container says what is wrong
		}
	} else {
		if unused, err := p.isUnused(d); unused || err != nil {
			return false, err
		}
		died, err = p.ensureDaemon(ctx, d, r)
	}
	if !errors.Is(err, errSilent) {
		w.silent = 0
		return died, err
	}
	if w.silent++; w.silent < silentMost {
		if complete {
			err = nil // it may be busy
		}
		return died, err
	}
	w.silent = 0
	if err := p.killSilentDaemon(ctx, d); err != nil {
		return died, err
	}
	return p.ensureDaemon(ctx, d, r)
}

// isUnused reports whether a daemon is gone whose device no container has: nobody has lost
// anything, and the next container starts another one.
func (p *Preparer) isUnused(d Daemon) (bool, error) {
	if pid, err := p.daemonPID(d); err != nil || pid != 0 {
		return false, err
	}
	if there, err := p.claimsOnDevice(d.Device); err != nil || len(there) > 0 {
		return false, err
	}
	return true, p.cfg.Files.Remove(d.startedFile())
}

// killSilentDaemon kills a daemon that does not answer. Its mark stays and says that it died.
func (p *Preparer) killSilentDaemon(ctx context.Context, d Daemon) error {
	pid, err := p.daemonPID(d)
	if err != nil || pid == 0 {
		return err
	}
	return p.cfg.Control.Kill(ctx, d, pid)
}
