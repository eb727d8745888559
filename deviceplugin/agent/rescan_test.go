// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"testing"
	"time"

	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/deviceplugin/node"
)

func TestADeviceThatWasChangedIsReadAgainWhenItIsAsked(t *testing.T) {
	facts := drivertest.A100(0)
	facts.Model = "NVIDIA H100 80GB HBM3" // which is switched without a reset
	driver := drivertest.New(facts)
	agent := offering(node.HealthRules{}, nil)
	condition := func() node.Kind { c, _ := agent.State().Condition(facts.UUID); return c.Kind }
	m := NewMonitor(driver, agent, MonitorConfig{Probe: time.Hour, Retry: time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	changes, _ := agent.Changes()
	<-changes
	if err := driver.SetMIGMode(facts.UUID, true); err != nil {
		t.Fatal(err)
	}
	if condition() != node.Ready {
		t.Fatal("it was read without being asked: the test shows nothing")
	}
	m.rescanDevices(ctx)
	if condition() != node.Unsupported {
		t.Error("the board does not know that partitioning is on")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	m.rescanDevices(ctx) // after the end it returns
}
