// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestTheKeeperServesWhatIsPublishedOnly(t *testing.T) {
	clock := testingclock.NewFakeClock(epoch)
	seen := bundles{err: errors.New("apiserver not up yet")}
	k := NewRenewer(newTestInstaller(t, fake.NewFakeClient(), clock, &seen), func(time.Time) {})
	if _, err := k.GetCertificate(nil); err == nil || k.Ready(nil) == nil {
		t.Error("a certificate out of nowhere")
	}
	if k.Sync(t.Context()) == nil || k.current.Load() != nil {
		t.Error("a certificate is served before its authority was ever published")
	}
	seen.set(nil)
	if err := k.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-k.Serving()
	first := k.current.Load()

	seen.set(errors.New("apiserver down"))
	clock.Step(61 * day)
	if k.Sync(t.Context()) == nil {
		t.Error("a bundle that could not be published went unreported")
	}
	if k.current.Load() != first || k.Ready(nil) != nil {
		t.Error("the certificate was switched though its authority could not be published")
	}
	clock.Step(30 * day)
	if k.Ready(nil) == nil {
		t.Error("ready with an expired certificate")
	}
	clock.SetTime(epoch.Add(-day))
	if k.Ready(nil) == nil {
		t.Error("ready with a certificate that is not valid yet")
	}
}

func TestTheKeeperRotatesByTheClockAndEndsWithItsContext(t *testing.T) {
	clock := testingclock.NewFakeClock(epoch)
	var mu sync.Mutex
	var ends []time.Time
	served := make(chan struct{}, 10)
	k := NewRenewer(newTestInstaller(t, fake.NewFakeClient(), clock, &bundles{}), func(end time.Time) {
		mu.Lock()
		ends = append(ends, end)
		mu.Unlock()
		served <- struct{}{}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- k.Start(ctx) }()
	<-served
	for !clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	clock.Step(61 * day)
	<-served
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Start: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(ends) != 2 || !ends[1].After(ends[0]) {
		t.Errorf("served certificates that end at %v, want two, the second later", ends)
	}
}
