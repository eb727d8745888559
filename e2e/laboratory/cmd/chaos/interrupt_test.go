// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

func TestTheFirstInterruptEndsARunInOrderAndTheSecondStopsIt(t *testing.T) {
	const begin = syscall.Signal(0) // no signal: the run begins
	for name, c := range map[string]struct {
		signals         []syscall.Signal
		enough, stopped bool
		said            int
	}{
		"nobody interrupts": {signals: []syscall.Signal{begin}},
		"one interrupt":     {signals: []syscall.Signal{begin, syscall.SIGINT}, enough: true, said: 1},
		"two interrupts":    {signals: []syscall.Signal{begin, syscall.SIGINT, syscall.SIGINT}, enough: true, stopped: true, said: 1},
		"three interrupts":  {signals: []syscall.Signal{begin, syscall.SIGINT, syscall.SIGINT, syscall.SIGINT}, enough: true, stopped: true, said: 1},
		"an interrupt while the cluster is started": {signals: []syscall.Signal{syscall.SIGINT}, stopped: true},
		"a termination":                    {signals: []syscall.Signal{begin, syscall.SIGTERM}, stopped: true},
		"a termination after an interrupt": {signals: []syscall.Signal{begin, syscall.SIGINT, syscall.SIGTERM}, enough: true, stopped: true, said: 1},
	} {
		t.Run(name, func(t *testing.T) {
			said := 0
			i := newInterrupts(func(string) { said++ })
			for _, s := range c.signals {
				if s == begin {
					i.begin()
				} else {
					i.obey(s)
				}
			}
			if enough, stopped := i.enough.Err() != nil, i.stopped.Err() != nil; enough != c.enough || stopped != c.stopped || said != c.said {
				t.Errorf("enough %v, stopped %v, said %d times; want %v, %v, %d", enough, stopped, said, c.enough, c.stopped, c.said)
			}
		})
	}
}

// The process is really sent the signals.
func TestInterruptsOfTheProcessArrive(t *testing.T) {
	i := newInterrupts(func(string) {})
	i.begin()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() { i.follow(signals); close(done) }()
	for _, ended := range []<-chan struct{}{i.enough.Done(), i.stopped.Done()} {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
		case <-time.After(10 * time.Minute):
			t.Fatal("nothing came of the signal")
		}
	}
	signal.Stop(signals)
	close(signals)
	<-done
}
