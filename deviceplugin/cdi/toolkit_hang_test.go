// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"errors"
	"testing"
	"time"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/sharing"
)

// stalling is a toolkit whose driver does not return when asked about GPU-bad. It
// counts how often it was asked.
type stalling struct {
	inside, returns chan struct{}
	asked           int
}

func (s *stalling) findEdits(common bool, devices []sharing.DeviceID) (answers, error) {
	s.asked++
	found := answers{devices: map[sharing.DeviceID]*cdi.ContainerEdits{}}
	if common {
		found.common = &cdi.ContainerEdits{ContainerEdits: &specs.ContainerEdits{}}
	}
	for _, id := range devices {
		if id == "GPU-bad" {
			s.inside <- struct{}{}
			<-s.returns
		}
		found.devices[id] = &cdi.ContainerEdits{ContainerEdits: &specs.ContainerEdits{Env: []string{"ID=" + string(id)}}}
	}
	return found, nil
}

func TestADriverThatHangsLeavesWhatWasLearnedBefore(t *testing.T) {
	driver := &stalling{inside: make(chan struct{}), returns: make(chan struct{})}
	toolkit := newToolkit(driver)
	good := []sharing.DeviceID{"GPU-good"}
	if _, err := toolkit.Edits(context.Background(), good); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := toolkit.Edits(context.Background(), []sharing.DeviceID{"GPU-bad"})
		ended <- err
	}()
	<-driver.inside
	edits, err := toolkit.Edits(t.Context(), good)
	if err != nil || len(edits.Env) != 1 || edits.Env[0] != "ID=GPU-good" {
		t.Errorf("the device that works gets %+v, %v", edits, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := toolkit.Edits(ctx, []sharing.DeviceID{"GPU-new"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a device that must be asked for gets %v", err)
	}
	toolkit.Forget() // would hang
	close(driver.returns)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	before := driver.asked
	if _, err := toolkit.Edits(context.Background(), good); err != nil || driver.asked != before+1 {
		t.Errorf("after the driver was replaced: %v, asked %d times", err, driver.asked-before)
	}
	if len(toolkit.known.devices) != 1 {
		t.Errorf("known are %v: an answer of the driver before is kept", toolkit.known.devices)
	}
}
