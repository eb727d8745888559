// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestAWriteBeginsWithinTheTermOnly(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	term := NewTerm(now)
	begins := func() bool {
		until, done, err := term.Begin()
		if err != nil {
			return false
		}
		defer done()
		if !until.After(now.Now()) {
			t.Errorf("a write that begins at %v must be over at %v", now.Now(), until)
		}
		return true
	}
	if begins() {
		t.Error("a write began before the election")
	}
	term.extendTo(term.now().add(15 * time.Second))
	term.extendTo(term.now().add(5 * time.Second)) // an answer that came late
	for seconds, want := range map[int64]bool{1000: true, 1014: true, 1015: false, 2000: false} {
		if now.SetTime(time.Unix(seconds, 0)); begins() != want {
			t.Errorf("a write begins %d s after the renewal: %v, want %v", seconds-1000, !want, want)
		}
	}
	term.extendTo(term.now().add(15 * time.Second))
	if term.drainWrites(); begins() {
		t.Error("a write began after the end")
	}
}

// A write must not begin because the machine stood still, or because its clock was set.
func TestATermEndsByTheClockThatSaysSoFirst(t *testing.T) {
	start := time.Unix(100_000, 0)
	for name, c := range map[string]struct {
		steady, wall time.Duration // that pass
		leads        bool
	}{
		"the lease lasts":                      {14 * time.Second, 14 * time.Second, true},
		"it is over":                           {15 * time.Second, 15 * time.Second, false},
		"the machine was suspended":            {time.Second, time.Hour, false},
		"the clock was set back, it lasts":     {14 * time.Second, -time.Hour, true},
		"the clock was set back, it is over":   {16 * time.Second, -time.Hour, false},
		"the clock was set forward: not known": {time.Second, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			steady, wall := clocktesting.NewFakePassiveClock(start), clocktesting.NewFakePassiveClock(start)
			term := &Term{steady: steady, wall: wall}
			lock := renewals{lockOf(fake.NewClientset(), "me"), term, 15 * time.Second}
			mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
			if err := lock.Create(t.Context(), mine); err != nil {
				t.Fatal(err)
			}
			steady.SetTime(start.Add(c.steady))
			wall.SetTime(start.Add(c.wall))
			_, done, err := term.Begin()
			if (err == nil) != c.leads || term.mayRelease() != c.leads {
				t.Errorf("a write begins: %v, want %v", err == nil, c.leads)
			}
			if err == nil {
				done()
			}
			if err := lock.Update(t.Context(), mine); err != nil {
				t.Fatal(err)
			}
			if _, done, err := term.Begin(); err != nil {
				t.Errorf("after the next renewal: %v", err)
			} else {
				done()
			}
		})
	}
}

// order notes what happened in which order.
type order struct {
	mu   sync.Mutex
	what []string
}

func (o *order) note(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.what = append(o.what, what)
}

// noted is a lock that notes when the lease is given back.
type noted struct {
	resourcelock.Interface
	order *order
}

func (n noted) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := n.Interface.Update(ctx, r)
	if err == nil && r.HolderIdentity == "" {
		n.order.note("given back")
	}
	return err
}

func lockOf(client kubernetes.Interface, identity string) resourcelock.Interface {
	return &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lease"}, Client: client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity}}
}

func timing() Timing {
	return Timing{LeaseDuration: time.Hour, RenewDeadline: time.Minute, RetryPeriod: 10 * time.Millisecond}
}

func TestTheLeaseIsGivenBackAfterTheLastWriteAndTheNextOneLeads(t *testing.T) {
	client, seen := fake.NewClientset(), &order{}
	ctx, end := context.WithCancel(t.Context())
	term := NewTerm(clock.RealClock{})
	began, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- Run(ctx, noted{lockOf(client, "first"), seen}, timing(), term, func() error {
			close(began)
			<-ctx.Done()
			return errors.New("its own signal")
		})
	}()
	<-began
	_, done, err := term.Begin()
	if err != nil {
		t.Fatal(err)
	}
	end()
	for err == nil { // until no write begins any more
		var another func()
		if _, another, err = term.Begin(); err == nil {
			another()
		}
	}
	seen.note("written")
	done()
	if err := <-ended; err != nil {
		t.Errorf("an orderly end is %v", err)
	}
	if want := []string{"written", "given back"}; !slices.Equal(seen.what, want) {
		t.Errorf("order %q, want %q", seen.what, want)
	}
	failed := errors.New("no cluster")
	err = Run(t.Context(), lockOf(client, "second"), timing(), NewTerm(clock.RealClock{}), func() error { return failed })
	if !errors.Is(err, failed) {
		t.Errorf("the next one, whose work fails, ended with %v", err)
	}
}

func TestOneThatWaitsEndsWhenItIsTold(t *testing.T) {
	client := fake.NewClientset()
	began := make(chan struct{})
	go func() {
		_ = Run(t.Context(), lockOf(client, "first"), timing(), NewTerm(clock.RealClock{}), func() error {
			close(began)
			<-t.Context().Done()
			return nil
		})
	}()
	<-began
	ctx, end := context.WithCancel(t.Context())
	end()
	err := Run(ctx, lockOf(client, "second"), timing(), NewTerm(clock.RealClock{}), func() error { return errors.New("both work") })
	if err != nil {
		t.Error(err)
	}
}

func TestALeaseThatMayBeAnothersIsNotGivenBack(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	lock := renewals{lockOf(fake.NewClientset(), "me"), NewTerm(now), 15 * time.Second}
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	if err := lock.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	now.SetTime(time.Unix(1016, 0)) // it was asleep
	if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{}); !errors.Is(err, ErrLost) {
		t.Errorf("given back: %v", err)
	}
	if err := lock.Update(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil {
		t.Errorf("its own lease is not given back: %v", err)
	}
}

// sleeper is a process of the model below: it follows the lease as client-go does.
type sleeper struct {
	term *Term
	// seen is the version of the lease that it saw last, and when it first did.
	seen   int
	seenAt int64
	// sent is when it sent an update that was not answered yet, 0 for none; taken tells the answer.
	sent  int64
	taken bool
	// wakes is when it does something again.
	wakes int64
}

// TestOfProcessesThatSleepAtAnyMomentOneWrites lets processes sleep for random times between any
// two things that they do. The lease is a version and a holder, which know nothing of terms.
func TestOfProcessesThatSleepAtAnyMomentOneWrites(t *testing.T) {
	const lease, steps = 15, 50_000
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, seed))
	now := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	all := make([]*sleeper, 4)
	for i := range all {
		all[i] = &sleeper{term: NewTerm(now)}
	}
	version, holder, changes, writers := 1, -1, 0, 0
	for second := int64(1); second < steps; second++ {
		now.SetTime(time.Unix(second, 0))
		for i, s := range all {
			if s.wakes > second {
				continue
			}
			switch {
			case s.sent > 0: // the answer
				if s.taken {
					s.term.extendTo(moment{time.Unix(s.sent+lease, 0), time.Unix(s.sent+lease, 0)})
				}
				s.sent = 0
			case s.seen != version && holder != i:
				s.seen, s.seenAt = version, second
			case holder == i || second >= s.seenAt+lease: // renew, or take
				s.sent, s.taken = second, s.seen == version
				if s.taken {
					if holder != i {
						changes++
					}
					version, holder = version+1, i
					s.seen, s.seenAt = version, second
				}
			}
			s.wakes = second + []int64{1, 2, 2, 3, random.Int64N(60)}[random.IntN(5)]
		}
		var leads []int
		for i, s := range all {
			if _, done, err := s.term.Begin(); err == nil {
				done()
				leads = append(leads, i)
			}
		}
		if len(leads) > 1 {
			t.Fatalf("seed %d, second %d: processes %v may write", seed, second, leads)
		}
		writers += len(leads)
	}
	if changes < 100 || writers < steps/4 {
		t.Errorf("seed %d: the lease changed hands %d times, and somebody could write in %d of %d seconds", seed, changes, writers, steps)
	}
}
