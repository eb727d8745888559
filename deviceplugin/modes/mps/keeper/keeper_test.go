// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"deviceshare/deviceplugin/modes/mps"
	"deviceshare/sharing"
)

// TestMain is a keeper where a test starts this program as one: it collects every child that
// ends, which the tests' own would be too.
func TestMain(m *testing.M) {
	dir, is := os.LookupEnv("KEEPER_TEST_DIR")
	if !is {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s := NewServer(Config{
		Socket: filepath.Join(dir, "keeper", "mps.sock"), Directories: filepath.Join(dir, "run"), Control: os.Getenv("KEEPER_TEST_CONTROL"), Root: "/",
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Idle: 2 * time.Second,
	})
	if err := s.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// machine is a host with the stand-in for the control program.
type machine struct {
	dir     string
	program mps.Program
	daemon  mps.Daemon
	client  Client
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	control, err := filepath.Abs("../../../../e2e/fakegpu/build/nvidia-cuda-mps-control")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(control); err != nil {
		t.Skip("the stand-in is not built: make -C e2e/fakegpu")
	}
	if os.Geteuid() != 0 {
		t.Skip("mounts can be made by root only")
	}
	dir, err := os.MkdirTemp("", "keeper") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	topology := "fakegpu 1\ndriver 580.95.05 cuda 13.0\ngpu model=\"A100\" memory=8192MiB cc=8.0 pci=0000:0f:00.0 uuid=" + id + "\n"
	if err := os.WriteFile(filepath.Join(dir, "topology"), []byte(topology), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKEGPU_DIR", dir)
	t.Setenv("KEEPER_TEST_DIR", dir)
	t.Setenv("KEEPER_TEST_CONTROL", control)
	m := &machine{dir: dir, client: Client{Socket: filepath.Join(dir, "keeper", "mps.sock"), Directories: filepath.Join(dir, "run")}}
	m.program = mps.Program{Path: control, Keeper: m.client}
	m.daemon = mps.Daemon{Device: id, Dir: filepath.Join(dir, "run", id)}
	for _, d := range []string{m.daemon.Pipe(), m.daemon.Log(), m.daemon.Shm()} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if pid := m.program.PID(m.daemon); pid != 0 {
			_ = m.program.Kill(context.Background(), m.daemon, pid)
		}
	})
	return m
}

// keep starts a keeper, which ends with the test.
func (m *machine) keep(t *testing.T) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_, _ = cmd.Process.Wait()
	})
	return cmd
}

// serves waits until a keeper can start daemons.
func (m *machine) serves(ctx context.Context, t *testing.T) {
	t.Helper()
	for m.client.Check(ctx) != nil {
		if pause(ctx); ctx.Err() != nil {
			t.Fatal(m.client.Check(context.Background()))
		}
	}
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Millisecond):
	}
}

// limited is a context that ends what hangs.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func parent(t *testing.T, pid int) int {
	t.Helper()
	proc, err := procfs.NewProc(pid)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := proc.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return stat.PPID
}

func TestADaemonIsTheKeepersChildAndItsEndIsKnown(t *testing.T) {
	ctx, m := limited(t), newMachine(t)
	keeper := m.keep(t)
	m.serves(ctx, t)
	if err := m.program.Start(ctx, m.daemon); err != nil {
		t.Fatal(err)
	}
	pid := m.program.PID(m.daemon)
	if got := parent(t, pid); got != keeper.Process.Pid {
		t.Errorf("the daemon's parent is process %d, the keeper is %d, and this is %d", got, keeper.Process.Pid, os.Getpid())
	}
	state, err := m.client.queryState(ctx)
	if err != nil || len(state.Running) != 1 || state.Running[0] != (Process{id, pid}) {
		t.Errorf("the keeper knows %+v, %v", state, err)
	}
	if err := m.program.Start(ctx, m.daemon); err == nil || !strings.Contains(err.Error(), "already running") {
		t.Errorf("a second start: %v", err)
	}
	if how, known := m.program.Ending(ctx, m.daemon, pid); known {
		t.Errorf("it has ended: %s", how)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for {
		how, known := m.program.Ending(ctx, m.daemon, pid)
		if known {
			if !strings.Contains(how, "killed") {
				t.Errorf("it ended so: %s", how)
			}
			break
		}
		if pause(ctx); ctx.Err() != nil {
			t.Fatal("its end is not seen")
		}
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		t.Error("nobody has collected it")
	}
	if err := m.program.Start(ctx, m.daemon); err != nil {
		t.Error(err)
	}
}

func TestAControlProgramThatRefusesSaysWhyThroughTheKeeper(t *testing.T) {
	ctx, m := limited(t), newMachine(t)
	m.keep(t)
	m.serves(ctx, t)
	other := mps.Daemon{Device: "GPU-none", Dir: filepath.Join(m.dir, "run", "GPU-none")}
	for _, d := range []string{other.Pipe(), other.Log(), other.Shm()} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.client.Start(ctx, other); err == nil || !strings.Contains(err.Error(), "No device is visible") {
		t.Errorf("a device that is not there: %v", err)
	}
	other.Device, other.Dir = id, filepath.Join(m.dir, "elsewhere", id)
	if err := m.client.Start(ctx, other); err == nil || !strings.Contains(err.Error(), "--mps-root differs") {
		t.Errorf("a directory elsewhere: %v", err)
	}
	partitioned := m.daemon
	partitioned.Partitioned = true
	if err := m.client.Start(ctx, partitioned); err == nil || !strings.Contains(err.Error(), "static partitioning is not known") {
		t.Errorf("an option that the program does not know: %v", err)
	}
}

// Bytes that no device plugin writes start nothing, and the keeper goes on serving.
func TestHostileBytesStartNothing(t *testing.T) {
	ctx, m := limited(t), newMachine(t)
	keeper := m.keep(t)
	m.serves(ctx, t)
	random := rand.New(rand.NewPCG(1, 1))
	good := Request{Version: Version, Start: &Daemon{Device: id, Directory: m.daemon.Dir}}.Encode()
	for i := range 300 {
		text := append([]byte(nil), good...)
		switch i % 3 {
		case 0: // something else in one place
			text[random.IntN(len(text)-1)] ^= byte(1 + random.IntN(255))
		case 1: // an end that comes too early
			text = append(text[:random.IntN(len(text)-1)], '\n')
		default: // nothing of it
			for j := range text {
				text[j] = byte(random.IntN(256))
			}
			text = append(text, '\n')
		}
		if r, err := ReadRequest(text); err == nil && (r.Start == nil || r.Start.Directory == m.daemon.Dir && r.Start.Device == id) {
			t.Fatalf("%q is read as %+v", text, r)
		}
		send(t, m.client.Socket, text)
	}
	send(t, m.client.Socket, []byte(strings.Repeat("x", 1<<20)))
	state, err := m.client.queryState(ctx)
	if err != nil || len(state.Running) > 0 || len(state.Ended) > 0 {
		t.Errorf("the keeper knows %+v, %v", state, err)
	}
	procs, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if stat, err := p.Stat(); err == nil && stat.PPID == keeper.Process.Pid {
			t.Errorf("the keeper has the child %s", stat.Comm)
		}
	}
	if err := m.program.Start(ctx, m.daemon); err != nil {
		t.Error(err)
	}
}

// send writes bytes and hangs up, as soon as there is an answer or the other side has had enough.
func send(t *testing.T, socket string, text []byte) {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = conn.Write(text)
	_ = conn.(*net.UnixConn).CloseWrite()
	_, _ = bufio.NewReader(conn).ReadBytes('\n')
}

// container starts a process that has the daemon's /dev/shm, as those of containers with the
// device have.
func (m *machine) container(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "sh", "-c", `mount --bind "$0" /dev/shm && echo there && exec sleep 1000`, m.daemon.Shm())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = bufio.NewReader(out).ReadString('\n')
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_, _ = cmd.Process.Wait()
	})
	return cmd
}

func TestAKeeperThatIsToldToEndWaitsForContainers(t *testing.T) {
	ctx, m := limited(t), newMachine(t)
	keeper := m.keep(t)
	m.serves(ctx, t)
	if err := m.program.Start(ctx, m.daemon); err != nil {
		t.Fatal(err)
	}
	pid, user := m.program.PID(m.daemon), m.container(t)
	next := m.keep(t) // waits for its turn
	if err := keeper.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for {
		err := m.client.Check(ctx)
		if err != nil && strings.Contains(err.Error(), "being replaced") {
			break
		}
		if pause(ctx); ctx.Err() != nil {
			t.Fatalf("it says %v", err)
		}
	}
	other := m.daemon
	if err := m.client.Start(ctx, other); err == nil || !strings.Contains(err.Error(), "it is ending") {
		t.Errorf("a start: %v", err)
	}
	for begin := time.Now(); time.Since(begin) < 5*time.Second; pause(ctx) { // Idle is 2 s
		if !m.program.Lives(m.daemon, pid) {
			t.Fatal("the daemon ended under a container that has its device")
		}
	}
	if err := user.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := user.Process.Wait(); err != nil {
		t.Fatal(err)
	}
	if state, err := keeper.Process.Wait(); err != nil || !state.Success() {
		t.Errorf("the keeper ended so: %v, %v", state, err)
	}
	if m.program.Lives(m.daemon, pid) {
		t.Error("the daemon is left")
	}
	m.serves(ctx, t)
	if err := m.program.Start(ctx, m.daemon); err != nil || parent(t, m.program.PID(m.daemon)) != next.Process.Pid {
		t.Errorf("the next keeper's daemon is not its own: %v", err)
	}
}

// A server that the daemon leaves behind is collected too.
func TestNothingStaysUncollected(t *testing.T) {
	ctx, m := limited(t), newMachine(t)
	keeper := m.keep(t)
	m.serves(ctx, t)
	for range 3 {
		if err := m.program.Start(ctx, m.daemon); err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(ctx, time.Second)
		// The stand-in's server keeps the connection, so the command does not end.
		_, _ = m.program.Tell(soon, m.daemon, "start_server -uid 0")
		cancel()
		if err := m.program.Kill(ctx, m.daemon, m.program.PID(m.daemon)); err != nil {
			t.Fatal(err)
		}
	}
	for {
		children := 0
		procs, err := procfs.AllProcs()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range procs {
			if stat, err := p.Stat(); err == nil && stat.PPID == keeper.Process.Pid {
				children++
			}
		}
		if children == 0 {
			return
		}
		if pause(ctx); ctx.Err() != nil {
			t.Fatalf("%d children are left", children)
		}
	}
}

func TestAKeeperThatCannotServeSaysWhy(t *testing.T) {
	ctx, dir := limited(t), t.TempDir()
	c := Client{Socket: filepath.Join(dir, "s"), Directories: "/run/a"}
	expect := func(want string) {
		t.Helper()
		if err := c.Check(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	expect("no keeper of MPS daemons runs on this node")
	listener, err := net.Listen("unix", c.Socket)
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan []byte, 1)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(conn).ReadBytes('\n')
			_, _ = conn.Write(<-said)
			_ = conn.Close()
		}
	}()
	state := State{Directories: "/run/b", Running: []Process{}, Ended: []End{}}
	for want, text := range map[string][]byte{
		"below /run/b, and the device plugin below /run/a": Answer{Version: Version, State: &state}.Encode(),
		"of another release":            []byte(`{"version":` + strconv.Itoa(Version+1) + "}\n"),
		"refuses: because":              Answer{Version: Version, Refused: "because"}.Encode(),
		"it answers \"\"":               nil,
		"neither a refusal nor a state": []byte(`{"version":1}` + "\n"),
	} {
		said <- text
		expect(want)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := c.Check(ended); err == nil {
		t.Error("a question that is broken off has an answer")
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	expect("no keeper of MPS daemons runs on this node")
}

func TestOnlyTheLastEndsAreRemembered(t *testing.T) {
	var d daemons
	for pid := range 3 * maxEnds {
		p := Process{Device: sharing.DeviceID(fmt.Sprint("GPU-", pid%5)), PID: pid + 1}
		if !d.addRunning(p) || d.addRunning(p) {
			t.Fatalf("%+v is taken in twice", p)
		}
		if _, is := d.recordEnd(p.PID, "x"); !is {
			t.Fatalf("%+v is not known", p)
		}
	}
	if s := d.copyState(); len(s.Running) != 0 || len(s.Ended) != maxEnds || s.Ended[maxEnds-1].PID != 3*maxEnds {
		t.Errorf("%d run, %d have ended, the last of them %+v", len(s.Running), len(s.Ended), s.Ended[len(s.Ended)-1])
	}
	if text := (Answer{Version: Version, State: &State{Ended: d.copyState().Ended}}).Encode(); len(text) > maxAnswer/2 {
		t.Errorf("an answer has %d bytes", len(text))
	}
}
