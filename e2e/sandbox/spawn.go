// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"os/exec"
	"runtime"
	"syscall"
)

// spawner starts child processes from one operating-system thread that lives as long as this process.
//
// The kernel sends a child's parent-death signal when the *thread* that started it ends, so a child started from
// an ordinary goroutine could be killed at any time. With this, children die exactly when this process does,
// even when it is killed by SIGKILL.
type spawner chan spawnRequest

type spawnRequest struct {
	cmd  *exec.Cmd
	done chan error
}

func newSpawner() spawner {
	s := make(spawner)
	go func() {
		// Never unlocked: the thread must not be handed to, or ended with, another goroutine.
		runtime.LockOSThread()
		for r := range s {
			r.done <- r.cmd.Start()
		}
		select {}
	}()
	return s
}

// start starts cmd in a process group of its own, so that a Ctrl-C at the terminal reaches only this process.
func (s spawner) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	r := spawnRequest{cmd: cmd, done: make(chan error, 1)}
	s <- r
	return <-r.done
}
