// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// thread is an operating-system thread of this process from which children are started.
//
// Two things of a child come from the thread that starts it: its namespaces, which may be others
// than those of the rest of the process, and the time of its parent-death signal, which the kernel
// sends when that thread ends. A child that an ordinary goroutine started could get the signal at
// any time.
type thread struct {
	work chan func()
	over chan struct{}
}

func newThread() *thread {
	t := &thread{work: make(chan func()), over: make(chan struct{})}
	go t.serve()
	return t
}

// serve does what it is given until end. The goroutine stays locked to its thread, which therefore
// ends with it.
func (t *thread) serve() {
	runtime.LockOSThread()
	if syscall.Gettid() == os.Getpid() {
		// Go keeps the first thread of a process for ever, and /proc/self shows its namespaces:
		// take another one.
		defer runtime.UnlockOSThread()
		taken := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(taken)
			t.loop()
		}()
		<-taken
		return
	}
	t.loop()
}

func (t *thread) loop() {
	for {
		select {
		case f := <-t.work:
			f()
		case <-t.over:
			return
		}
	}
}

// do runs f on the thread and returns its error.
func (t *thread) do(f func() error) error {
	done := make(chan error, 1)
	select {
	case t.work <- func() { done <- f() }:
		return <-done
	case <-t.over:
		return errors.New("the cluster is stopped")
	}
}

// start starts cmd from the thread, in a process group of its own, so that a Ctrl-C at the terminal
// reaches only this process.
func (t *thread) start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	return t.do(cmd.Start)
}

// end ends the thread. It must be called once.
func (t *thread) end() { close(t.over) }
