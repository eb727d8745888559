// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/endpoint/endpointtest"
	"deviceshare/plugins/deviceshare"
	"deviceshare/plugins/liveness"
	"deviceshare/sharing/factory"
)

// hanging is an action that does not end before it is let go.
type hanging struct{ began, letGo chan struct{} }

func (hanging) Name() string { return "allocate" }

func (hanging) Initialize() {}

func (hanging) UnInitialize() {}

func (h hanging) Execute(*framework.Session) {
	close(h.began)
	<-h.letGo
}

func TestTheHealthCheckFailsWhileTheSessionHangs(t *testing.T) {
	address := endpointtest.FreeAddress(t)
	now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	pulse := liveness.NewPulse(now, liveness.DefaultLimit)
	volcano := &options.ServerOption{EnableHealthz: true, HealthzBindAddress: address}
	if err := serveHealth(volcano, pulse); err != nil {
		t.Fatal(err)
	}
	if volcano.EnableHealthz {
		t.Error("Volcano serves its own health check, too")
	}
	expect := func(want int, when string) {
		t.Helper()
		answer, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s it answers %d, want %d", when, answer.StatusCode, want)
		}
	}
	expect(http.StatusOK, "while another scheduler leads")
	store := deviceshare.NewStore(deviceshare.Options{Backends: factory.New(), Pulse: pulse})
	action := hanging{make(chan struct{}), make(chan struct{})}
	ended := make(chan struct{})
	go func() { defer close(ended); store.Explained(action).Execute(nil) }()
	<-action.began
	expect(http.StatusOK, "when an action has begun")
	now.SetTime(now.Now().Add(liveness.DefaultLimit))
	expect(http.StatusInternalServerError, "when it has not ended in time")
	close(action.letGo)
	<-ended
	expect(http.StatusOK, "when it has ended")
}
