// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/host"
	"deviceshare/sharing"
)

const fakeUUID = "GPU-11111111-2222-3333-4444-555555555555"

// standIn is the control program of the fake hardware, on a machine of its own.
func standIn(t *testing.T) (Program, Daemon) {
	t.Helper()
	path, err := filepath.Abs("../../../e2e/fakegpu/build/nvidia-cuda-mps-control")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("the stand-in is not built: make -C e2e/fakegpu")
	}
	if os.Geteuid() != 0 {
		t.Skip("mounts can be made by root only")
	}
	dir, err := os.MkdirTemp("", "mps") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	topology := "fakegpu 1\ndriver 580.95.05 cuda 13.0\n" +
		"gpu model=\"Other\" memory=1024MiB pci=0000:07:00.0\ngpu model=\"A100\" memory=8192MiB cc=8.0 pci=0000:0f:00.0 uuid=" + fakeUUID + "\n"
	if err := os.WriteFile(filepath.Join(dir, "topology"), []byte(topology), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKEGPU_DIR", dir)
	p := Program{Path: path}
	d := Daemon{Device: fakeUUID, Dir: filepath.Join(dir, "run", fakeUUID)}
	t.Cleanup(func() {
		if pid := p.PID(d); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		for _, dir := range []string{d.Pipe(), d.Shm()} {
			if err := (Tmpfs{}).Release(dir); err != nil {
				t.Error(err)
			}
		}
	})
	return p, d
}

// newerDriver makes the fake machine's driver one of CUDA 13.1.
func newerDriver(t *testing.T) {
	t.Helper()
	path := filepath.Join(os.Getenv("FAKEGPU_DIR"), "topology")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "cuda 13.0", "cuda 13.1", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// onlyCompute is a device without a driver to ask.
type onlyCompute struct{}

func (onlyCompute) ComputeMode(sharing.DeviceID) (driver.ComputeMode, error) {
	return driver.ExclusiveProcess, nil
}
func (onlyCompute) SetComputeMode(sharing.DeviceID, driver.ComputeMode) error { return nil }

// over is a preparer with the stand-in.
func over(p Program, d Daemon) *Preparer {
	base := filepath.Dir(filepath.Dir(d.Dir))
	return New(Config{
		Files: host.OS{}, Root: filepath.Join(base, "state"), Directories: filepath.Dir(d.Dir), Control: p, Hardware: onlyCompute{}, Space: Tmpfs{}, Shm: 8 * sharing.MiB, ShmMost: sharing.GiB,
	})
}

func TestTheControlProgramIsStartedToldAdoptedAndEnded(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	program, d := standIn(t)
	p, r := over(program, d), deviceRecord{Version: version, MemoryMiB: 8000, Percentage: 70, Wanted: true}
	if _, err := p.ensureDaemon(ctx, d, r); err != nil {
		t.Fatal(err)
	}
	pid := program.PID(d)
	if text, err := program.Tell(ctx, d, "get_default_device_pinned_mem_limit 0"); err != nil || text != "7G\n" {
		t.Errorf("the default limit is %q, %v", text, err)
	}
	if text, err := program.Tell(ctx, d, "get_default_device_pinned_mem_limit 1"); err != nil || !strings.Contains(text, "Invalid") {
		t.Errorf("the daemon has a second device: %q, %v", text, err)
	}
	if died, err := over(program, d).ensureDaemon(ctx, d, r); err != nil || died || program.PID(d) != pid {
		t.Errorf("after a restart: died %v, %v, process %d", died, err, program.PID(d))
	}
	here, err1 := os.Stat(d.Shm())
	there, err2 := os.Stat(fmt.Sprintf("/proc/%d/root/dev/shm", pid))
	if err1 != nil || err2 != nil || !os.SameFile(here, there) {
		t.Errorf("the daemon has not its own /dev/shm (%v, %v)", err1, err2)
	}
	if session, _, _ := syscall.RawSyscall(syscall.SYS_GETSID, uintptr(pid), 0, 0); int(session) != pid {
		t.Errorf("the daemon is in session %d", session)
	}
	if err := p.quitDaemon(ctx, d); err != nil || program.PID(d) != 0 {
		t.Errorf("quit: %v, process %d", err, program.PID(d))
	}
}

// The driver's installation may be elsewhere than this process's own files, as in a
// container. Here it is the same place under another name.
func TestTheControlProgramRunsBelowTheDriversRoot(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	program, d := standIn(t)
	program.Root = "/proc/thread-self/root" // mount namespaces are made by a thread
	p := over(program, d)
	if _, err := p.ensureDaemon(ctx, d, deviceRecord{Version: version, MemoryMiB: 8000, Percentage: 40}); err != nil {
		t.Fatal(err)
	}
	if text, err := program.Tell(ctx, d, "get_default_active_thread_percentage"); err != nil || text != "40.0\n" {
		t.Errorf("it answers %q, %v", text, err)
	}
	if err := p.quitDaemon(ctx, d); err != nil {
		t.Error(err)
	}
}

func TestAKilledControlProgramIsSeenAsDeadAndStartedInItsDirectory(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	program, d := standIn(t)
	p, r := over(program, d), deviceRecord{Version: version, MemoryMiB: 8000, Percentage: 100, Wanted: true}
	if _, err := p.ensureDaemon(ctx, d, r); err != nil {
		t.Fatal(err)
	}
	pid := program.PID(d)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for program.PID(d) != 0 {
		select {
		case <-ctx.Done():
			t.Fatal("it is taken to live")
		case <-time.After(10 * time.Millisecond):
		}
	}
	_, err := program.Tell(ctx, d, "get_server_list")
	for err == nil && ctx.Err() == nil { // its socket goes with the last of its threads
		_, err = program.Tell(ctx, d, "get_server_list")
	}
	if err == nil || !strings.Contains(err.Error(), "Cannot find MPS control daemon") {
		t.Errorf("a command to it is answered with %v", err)
	}
	died, err := p.ensureDaemon(ctx, d, r)
	if err != nil || !died || program.PID(d) == 0 || program.PID(d) == pid {
		t.Errorf("started again: died %v, %v, process %d", died, err, program.PID(d))
	}
}

func TestAControlProgramThatRefusesSaysWhy(t *testing.T) {
	program, d := standIn(t)
	d.Device = "GPU-none"
	_, err := over(program, d).ensureDaemon(context.Background(), d, deviceRecord{MemoryMiB: 1, Percentage: 100})
	if err == nil || !strings.Contains(err.Error(), "No device is visible") {
		t.Errorf("the answer is %v", err)
	}
}

// Containers have the pipe directory and /dev/shm, and root in one can do this.
func TestNothingThatAContainerPutsIntoThePipeDirectoryStopsTheDaemon(t *testing.T) {
	for name, trap := range map[string]func(pipe string) error{
		"a pipe for the process":        func(pipe string) error { return syscall.Mkfifo(filepath.Join(pipe, pidFile), 0o600) },
		"an endless file":               func(pipe string) error { return os.Symlink("/dev/zero", filepath.Join(pipe, pidFile)) },
		"another process":               func(pipe string) error { return os.WriteFile(filepath.Join(pipe, pidFile), []byte("1\n"), 0o600) },
		"no process":                    func(string) error { return nil },
		"a directory":                   func(pipe string) error { return os.Mkdir(filepath.Join(pipe, pidFile), 0o700) },
		"no process and no socket":      func(pipe string) error { return os.Remove(filepath.Join(pipe, "control")) },
		"a socket that nobody looks at": func(pipe string) error { return deaf(filepath.Join(pipe, "control")) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			program, d := standIn(t)
			p, r := over(program, d), deviceRecord{Version: version, MemoryMiB: 8000, Percentage: 70, Wanted: true}
			if _, err := p.ensureDaemon(ctx, d, r); err != nil {
				t.Fatal(err)
			}
			pid := program.PID(d)
			if err := os.Remove(filepath.Join(d.Pipe(), pidFile)); err != nil {
				t.Fatal(err)
			}
			if err := trap(d.Pipe()); err != nil {
				t.Fatal(err)
			}
			if got := program.PID(d); got != pid || !p.isConfigured(d) {
				t.Errorf("the daemon is process %d, and taken to be %d", pid, got)
			}
			if err := p.quitDaemon(ctx, d); err != nil || program.PID(d) != 0 {
				t.Errorf("quit: %v, process %d", err, program.PID(d))
			}
			if died, err := p.ensureDaemon(ctx, d, r); err != nil || !died {
				t.Errorf("started again: died %v, %v", died, err)
			}
		})
	}
}

const pidFile = "nvidia-cuda-mps-control.pid"

// deaf makes a pipe in place of a socket.
func deaf(path string) error {
	return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600))
}

// A container's program may have the name of the daemon, which another device's has
// too.
func TestAnotherDevicesDaemonIsNotTakenForTheDevices(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	program, d := standIn(t)
	if _, err := over(program, d).ensureDaemon(ctx, d, deviceRecord{Version: version, MemoryMiB: 8000, Percentage: 70}); err != nil {
		t.Fatal(err)
	}
	pid, other := program.PID(d), Daemon{Device: "GPU-b", Dir: t.TempDir()}
	if err := os.MkdirAll(other.Shm(), 0o700); err != nil {
		t.Fatal(err)
	}
	if program.Lives(other, pid) || program.PID(other) != 0 || program.Lives(d, os.Getpid()) || program.Lives(d, -1) {
		t.Error("another process is taken for the daemon")
	}
	if err := program.Kill(ctx, other, pid); err != nil || !program.Lives(d, pid) {
		t.Errorf("it was killed for another device (%v)", err)
	}
}

func TestADaemonThatHangsIsEndedWithItsServers(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	program, d := standIn(t)
	p, r := over(program, d), deviceRecord{Version: version, MemoryMiB: 8000, Percentage: 70, Wanted: true}
	if _, err := p.ensureDaemon(ctx, d, r); err != nil {
		t.Fatal(err)
	}
	// The stand-in's server keeps the connection, so the command does not end.
	go func() { _, _ = program.Tell(ctx, d, "start_server -uid 0") }()
	pid := program.PID(d)
	for all := program.listProcesses(d); len(all) != 2 || all[0].pid != pid || all[1].parent != pid; all = program.listProcesses(d) {
		if time.Sleep(10 * time.Millisecond); ctx.Err() != nil {
			t.Fatalf("daemon %d and its server are %+v", pid, all)
		}
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := program.Tell(soon, d, "get_server_list"); err == nil || ctx.Err() != nil {
		t.Errorf("it answers: %v", err)
	}
	if err := p.killSilentDaemon(ctx, d); err != nil || len(program.listProcesses(d)) > 0 {
		t.Errorf("left are %v (%v)", program.listProcesses(d), err)
	}
	if died, err := p.ensureDaemon(ctx, d, r); err != nil || !died || program.PID(d) == pid {
		t.Errorf("started again: died %v, %v", died, err)
	}
}

func TestAControlProgramThatCannotBeRunIsNoDaemonThatIsSilent(t *testing.T) {
	for text, want := range map[string]bool{
		"#!/bin/sh\nexit 1\n":        false,
		"#!/bin/sh\nexec /nowhere\n": true,
		"#!/nowhere\n":               true,
		"#!/bin/sh\necho Cannot find MPS control daemon\nexit 1\n": false,
	} {
		path := filepath.Join(t.TempDir(), "control")
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := Program{Path: path}.Tell(context.Background(), Daemon{Dir: t.TempDir()}, "get_server_list")
		if err == nil || errors.Is(err, ErrNotAsked) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := (Program{Path: "/nowhere"}).Tell(context.Background(), Daemon{}, "get_server_list"); !errors.Is(err, ErrNotAsked) {
		t.Errorf("no program: %v", err)
	}
}

func TestAContainerIsSeenByItsSharedMemory(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	program, d := standIn(t)
	expect := func(want bool) {
		t.Helper()
		if has, err := program.HasUsers(d); err != nil || has != want {
			t.Errorf("containers: %v, %v", has, err)
		}
	}
	expect(false) // no directory
	if _, err := over(program, d).ensureDaemon(ctx, d, deviceRecord{Version: version, MemoryMiB: 8000, Percentage: 70}); err != nil {
		t.Fatal(err)
	}
	expect(false) // the daemon alone
	container := exec.Command("sleep", "1000")
	if err := (Program{}).startInside(d, container); err != nil {
		t.Fatal(err)
	}
	expect(true)
	if err := container.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for { // it ends soon, and is not collected before the look
		if has, err := program.HasUsers(d); err == nil && !has {
			break
		}
		if time.Sleep(10 * time.Millisecond); ctx.Err() != nil {
			t.Fatal("a container that has ended is seen")
		}
	}
	_ = container.Wait()
}

// A namespace that cannot be made is no daemon that is silent.
func TestACommandInANamespaceThatCannotBeMadeWasNotAsked(t *testing.T) {
	program, d := standIn(t)
	program.Root = t.TempDir()
	if _, err := program.Tell(context.Background(), d, "get_server_list"); !errors.Is(err, ErrNotAsked) || !strings.Contains(err.Error(), d.Dir) {
		t.Errorf("without the daemon's directories: %v", err)
	}
	if err := over(program, d).makeDirectories(d); err != nil {
		t.Fatal(err)
	}
	if _, err := program.Tell(context.Background(), d, "get_server_list"); !errors.Is(err, ErrNotAsked) {
		t.Errorf("without the program below the root: %v", err)
	}
	if _, err := os.Stat(filepath.Join(program.Root, d.Dir)); err != nil {
		t.Errorf("the place for the mount: %v", err)
	}
	if wd, err := os.Getwd(); err != nil || wd == "/" {
		t.Errorf("this process is in %s, %v", wd, err)
	}
}

func TestAnAnswerWithoutEndIsNotKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endless")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec yes\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Program{Path: path}.Tell(context.Background(), Daemon{Dir: t.TempDir()}, "get_server_list")
	if err == nil || len(err.Error()) > 1000 {
		t.Errorf("the answer is %.1000v", err)
	}
}

func TestTheStateOfAProcessIsReadWhateverItsName(t *testing.T) {
	rest := strings.Repeat(" 0", 49)
	for _, c := range []struct {
		comm, stat string
		want       int
	}{
		{"nvidia-cuda-mps", "5 (nvidia-cuda-mps) S 4" + rest, 4},
		{"nvidia-cuda-mps", "5 (nvidia-cuda-mps) Z 4" + rest, -1},
		{"nvidia-cuda-mps", "5 (nvidia-cuda-mps) X 4" + rest, -1},
		{"nvidia-cuda-mps", "5 (nvidia-cuda-mps) S", -1},
		{"nvidia-cuda) S 9", "5 (nvidia-cuda) S 9) S 4" + rest, -1},
		{"a", "5 (a) S 4" + rest, -1},
		{"", "", -1},
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "5")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "comm"), []byte(c.comm+"\n"), 0o600),
			os.WriteFile(filepath.Join(dir, "stat"), []byte(c.stat+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		fs, err := procfs.NewFS(root)
		if err != nil {
			t.Fatal(err)
		}
		proc, err := fs.Proc(5)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := parentOf(proc, "nvidia-cuda-mps-control"); ok != (c.want > 0) || ok && got != c.want {
			t.Errorf("%q: parent %d, %v", c.stat, got, ok)
		}
	}
}

func TestTheControlProgramIsFoundBelowTheDriversRoot(t *testing.T) {
	root := t.TempDir()
	want := filepath.Join(root, "usr", "bin", "nvidia-cuda-mps-control")
	if _, err := FindProgram("nvidia-cuda-mps-control", root); err == nil {
		t.Skip("this machine has one")
	}
	if err := os.MkdirAll(filepath.Dir(want), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(want, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := FindProgram("nvidia-cuda-mps-control", root)
	if filepath.Join(got.Root, got.Path) != want || got.ownRoot() || err != nil {
		t.Errorf("found %+v, %v", got, err)
	}
	if _, err := FindProgram(want+".gone", root); err == nil {
		t.Error("a path that is not there is found")
	}
}
