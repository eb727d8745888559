// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"testing"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// replies is a service that answers one after the other.
type replies []error

func (r *replies) Check(context.Context) error {
	err := (*r)[0]
	*r = (*r)[1:]
	return err
}

func TestAModeIsOutOfServiceWhileWhatItNeedsDoesNotWork(t *testing.T) {
	gone, other := errors.New("gone"), errors.New("other")
	a := New(node.Config{Node: "n"}, nil)
	a.Send(node.Configured{Settings: node.Settings{Offers: given{"GPU-0": sharing.MPS}}})
	a.Send(node.Scanned{Devices: []node.Facts{{UUID: "GPU-0", PCI: "0000:07:00.0"}}})
	r := replies{}
	w := &serviceWatch{agent: a, mode: sharing.MPS, service: &r, failed: true}
	for i, step := range []struct {
		answer error
		want   string // the reason that is published, "" if pods are taken
	}{
		{gone, "gone"}, // at the start one failure counts
		{nil, ""},
		{gone, ""}, // it may be passing
		{nil, ""},
		{gone, ""},
		{gone, "gone"},
		{other, "other"},
		{other, "other"},
		{nil, ""},
	} {
		r = replies{step.answer}
		w.checkService(context.Background())
		c, _ := a.State().Condition("GPU-0")
		if c.Detail != step.want || (c.Kind == node.Interrupted) != (step.want != "") {
			t.Errorf("step %d: the device is %v, want %q", i, c, step.want)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for range 3 {
		r = replies{gone}
		w.checkService(ended)
	}
	if c, _ := a.State().Condition("GPU-0"); c.Kind != node.Ready {
		t.Errorf("questions that were broken off make the device %v", c)
	}
}
