// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/driver/migtest"
	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes/mig"
	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest"
)

// meeting is a driver in which the first instance of each device is made when every other device is
// at its first one too.
type meeting struct {
	driver.Partitions
	mu   sync.Mutex
	came map[sharing.DeviceID]bool
	want int
	all  chan struct{}
}

func (m *meeting) CreateGPUInstance(id sharing.DeviceID, profile string, start int) (int, error) {
	m.mu.Lock()
	m.came[id] = true
	if len(m.came) == m.want {
		select {
		case <-m.all:
		default:
			close(m.all)
		}
	}
	m.mu.Unlock()
	select {
	case <-m.all:
	case <-time.After(10 * time.Minute):
		return 0, errors.New("the other devices are not worked on at the same time")
	}
	return m.Partitions.CreateGPUInstance(id, profile, start)
}

func TestPartitionsOfAllDevicesAreMadeAtTheSameTime(t *testing.T) {
	const devices, each = 8, 7
	var cards []migtest.Card
	for i := range devices {
		cards = append(cards, migtest.Card{ID: sharing.DeviceID(fmt.Sprint("GPU-", i)), MIG: *sharingtest.Models()["H100"].MIG, Resetless: true})
	}
	hardware := migtest.New(cards...)
	slow := &meeting{Partitions: hardware, came: map[sharing.DeviceID]bool{}, want: devices, all: make(chan struct{})}
	p := mig.New(mig.Config{Files: host.OS{}, Root: filepath.Join(t.TempDir(), "mig"), Driver: slow})
	made, failed := make(chan sharing.DeviceID, devices*each), make(chan error, devices*each)
	var all sync.WaitGroup
	for n := range devices * each {
		all.Go(func() {
			owner := sharing.Owner(fmt.Sprint("pod-", n))
			in, err := p.Prepare(t.Context(), claim(owner, "main", place{cards[n/each].ID, "1g.10gb", n % each}))
			if err != nil {
				failed <- err
				return
			}
			made <- in.Devices[0]
		})
	}
	all.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	close(made)
	seen := map[sharing.DeviceID]bool{}
	for id := range made {
		seen[id] = true
	}
	if len(seen) != devices*each {
		t.Errorf("%d partitions, want %d", len(seen), devices*each)
	}
}

// tired is a driver in which making an instance takes until the time of the start is up.
type tired struct {
	driver.Partitions
	up   func()
	made int
}

func (d *tired) CreateGPUInstance(id sharing.DeviceID, profile string, start int) (int, error) {
	d.up()
	d.made++
	return d.Partitions.CreateGPUInstance(id, profile, start)
}

func TestWhatAStartMadeBeforeItsTimeWasUpIsThereForTheNextTry(t *testing.T) {
	m := newMachine(t)
	slow := &tired{Partitions: m.cards}
	p := mig.New(mig.Config{Files: host.OS{}, Root: m.root, Driver: slow})
	first, second := claim("one", "main", place{h100, "1g.10gb", 0}), claim("two", "main", place{h100, "1g.10gb", 1})
	ctx, cancel := context.WithCancel(t.Context())
	slow.up = cancel
	if _, err := p.Prepare(ctx, first); !errors.Is(err, context.Canceled) {
		t.Fatalf("the error is %v, want that the time is up", err)
	}
	if _, err := p.Prepare(ctx, second); !errors.Is(err, context.Canceled) {
		t.Fatalf("who waited is told %v", err)
	}
	slow.up = func() {}
	for _, c := range []sharing.Owner{"one", "two"} {
		again := first
		if c == "two" {
			again = second
		}
		if _, err := p.Prepare(t.Context(), again); err != nil {
			t.Fatal(err)
		}
	}
	all, err := m.cards.Instances(h100)
	if err != nil || len(all) != 2 || slow.made != 2 {
		t.Errorf("%d instances, made %d times, %v: want one for each", len(all), slow.made, err)
	}
}
