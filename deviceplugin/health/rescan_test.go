// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"testing"
	"time"

	"deviceshare/deviceplugin/discovery"
	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/sharing"
)

func TestADeviceThatWasChangedIsReadAgainWhenItIsAsked(t *testing.T) {
	facts := drivertest.A100(0)
	facts.Model = "NVIDIA H100 80GB HBM3" // which is switched without a reset
	driver := drivertest.New(facts)
	board := discovery.NewBoard("n", discovery.Settings{Device: func(*discovery.Found) discovery.Offer {
		return discovery.Offer{Mode: sharing.HAMiCore, MaxShares: 1}
	}})
	m := New(driver, board, Config{Probe: time.Hour, Retry: time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	changes, _ := board.Changes()
	<-changes
	if err := driver.SetMIGMode(facts.UUID, true); err != nil {
		t.Fatal(err)
	}
	if len(board.Unfit()) != 0 {
		t.Fatal("it was read without being asked: the test shows nothing")
	}
	m.Rescan(ctx)
	if len(board.Unfit()) != 1 {
		t.Error("the board does not know that partitioning is on")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	m.Rescan(ctx) // after the end it returns
}
