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
// tells how often it was asked.
func stalling() (toolkit *Toolkit, inside, returns chan struct{}, asked *int) {
	toolkit, inside, returns, asked = NewToolkit(ToolkitConfig{}), make(chan struct{}), make(chan struct{}), new(int)
	toolkit.find = func(common bool, devices []sharing.DeviceID) (answers, error) {
		*asked++
		found := answers{devices: map[sharing.DeviceID]*cdi.ContainerEdits{}}
		if common {
			found.common = &cdi.ContainerEdits{ContainerEdits: &specs.ContainerEdits{}}
		}
		for _, id := range devices {
			if id == "GPU-bad" {
				inside <- struct{}{}
				<-returns
			}
			found.devices[id] = &cdi.ContainerEdits{ContainerEdits: &specs.ContainerEdits{Env: []string{"ID=" + string(id)}}}
		}
		return found, nil
	}
	return toolkit, inside, returns, asked
}

func TestADriverThatHangsLeavesWhatWasLearnedBefore(t *testing.T) {
	toolkit, inside, returns, asked := stalling()
	good := []sharing.DeviceID{"GPU-good"}
	if _, err := toolkit.Edits(context.Background(), good); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := toolkit.Edits(context.Background(), []sharing.DeviceID{"GPU-bad"})
		ended <- err
	}()
	<-inside
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	edits, err := toolkit.Edits(ctx, good)
	if err != nil || len(edits.Env) != 1 || edits.Env[0] != "ID=GPU-good" {
		t.Errorf("the device that works gets %+v, %v", edits, err)
	}
	if _, err := toolkit.Edits(ctx, []sharing.DeviceID{"GPU-new"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a device that must be asked for gets %v", err)
	}
	toolkit.Forget() // would hang
	close(returns)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	before := *asked
	if _, err := toolkit.Edits(context.Background(), good); err != nil || *asked != before+1 {
		t.Errorf("after the driver was replaced: %v, asked %d times", err, *asked-before)
	}
	if len(toolkit.known.devices) != 1 {
		t.Errorf("known are %v: an answer of the driver before is kept", toolkit.known.devices)
	}
}
