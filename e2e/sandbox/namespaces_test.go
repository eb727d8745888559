// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
)

// victimState hands the state directory to the test process that is going to be killed, and
// victimReady is what it prints, with the number of the cluster's first process, when its cluster
// runs.
const (
	victimState = "DEVICESHARE_SANDBOX_VICTIM"
	victimReady = "the cluster of the victim runs in the namespaces of process "
)

// TestVictim owns a cluster with a running container until its process is killed.
func TestVictim(t *testing.T) {
	state := os.Getenv(victimState)
	if state == "" {
		t.Skip("is run by TestNothingOfAClusterOutlivesItsKilledOwner")
	}
	c, err := Start(t.Context(), victimOptions(state))
	if err != nil {
		t.Fatal(err)
	}
	createPod(t.Context(), t, c, "forever", NodeName, "sleep 100000")
	waitPhase(t.Context(), t, c, "forever", corev1.PodRunning)
	fmt.Printf("%s%d\n", victimReady, c.inside.first.Process.Pid)
	select {}
}

// makeBare makes the namespaces of a cluster without components.
func makeBare(t *testing.T) (*namespaces, layout) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes namespaces: run as root")
	}
	l := layout{repo: t.TempDir(), state: filepath.Join(t.TempDir(), "state")}
	if err := errors.Join(os.MkdirAll(filepath.Dir(l.bin("pause")), 0o755), l.makeDirs()); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-static", "-o", l.bin("pause"), "images/pause.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	n, err := makeNamespaces(t.Context(), l, false)
	if err != nil {
		t.Fatal(err)
	}
	return n, l
}

func TestTheMachineSeesNothingOfWhatTheClusterMountsAndSets(t *testing.T) {
	n, l := makeBare(t)
	defer n.end()
	before := seen(t, Options{State: l.state})
	out, err := n.run(t.Context(), []string{"WORD=hello"}, "sh", "-c", `
		set -e
		echo 77 > /proc/sys/kernel/panic; cat /proc/sys/kernel/panic
		echo $WORD > /var/lib/kubelet/word
		mkdir /run/containerd/dir; touch /var/lib/cni/x /var/log/containers/y
		mkdir /var/lib/kubelet/volume; mount -t tmpfs tmpfs /var/lib/kubelet/volume
		readlink /proc/self/ns/pid
		grep -o '/var/lib/kubelet/volume rw,relatime shared' /proc/self/mountinfo`)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("77\n%s\n/var/lib/kubelet/volume rw,relatime shared\n", namespaceOf(t, n.first.Process.Pid))
	if out != want {
		t.Errorf("inside it looks like\n%s\nwant\n%s", out, want)
	}
	before.assertUnchanged(t, Options{State: l.state})
	if text, err := os.ReadFile(filepath.Join(l.kubeletRoot(), "word")); err != nil || string(text) != "hello\n" {
		t.Errorf("the kubelet's directory holds %q, %v", text, err)
	}
}

func TestEndKillsOrphansAndUndoesMounts(t *testing.T) {
	n, l := makeBare(t)
	inside := namespaceOf(t, n.first.Process.Pid)
	if len(strayThreads(t)) != 1 {
		t.Error("no thread of this process is in the mount namespace")
	}
	if out, err := n.run(t.Context(), nil, "sh", "-c", "mkdir /var/lib/kubelet/v; mount -t tmpfs tmpfs /var/lib/kubelet/v;"+
		" (setsid sleep 100000 >/dev/null 2>&1 &); sleep 0.1; ps -eo ppid,args | grep '^ *1 sleep'"); err != nil {
		t.Fatalf("an orphan is no child of the first process: %v\n%s", err, out)
	}
	n.end()
	if left := inside.processes(t); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	eventually(t, "the thread ends", func() bool { return len(strayThreads(t)) == 0 })
	if err := os.RemoveAll(l.state); err != nil {
		t.Error(err)
	}
	if _, err := n.run(t.Context(), nil, "true"); err == nil || !strings.Contains(err.Error(), "the cluster is stopped") {
		t.Errorf("a program in namespaces that ended: %v", err)
	}
}

func TestNothingOfAClusterOutlivesItsKilledOwner(t *testing.T) {
	needE2E(t)
	ctx, cancel := context.WithTimeout(t.Context(), smokeLimit)
	defer cancel()
	o := smokeOptions(t)
	if err := Build(ctx, o); err != nil {
		t.Fatal(err)
	}
	before := seen(t, o)
	owner, first := startVictim(ctx, t, o)
	inside := namespaceOf(t, first)
	if n := len(inside.processes(t)); n < 8 {
		t.Errorf("%d processes in the namespace of the cluster, want its components, their first process and the container", n)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	killed := time.Now()

	// The next start does not wait, and another sandbox may start beside it.
	again := startSmoke(ctx, t, o)
	eventually(t, "the kernel ends every process", func() bool { return len(inside.processes(t)) == 0 })
	t.Logf("%.1f s after the owner was killed a cluster runs in its place", time.Since(killed).Seconds())
	other := smokeOptions(t)
	elsewhere := startSmoke(ctx, t, other)
	for _, c := range []*Cluster{again, elsewhere} {
		createPod(ctx, t, c, "after", NodeName, "true")
	}
	for _, c := range []*Cluster{again, elsewhere} {
		waitPhase(ctx, t, c, "after", corev1.PodSucceeded)
	}
	for _, c := range []*Cluster{again, elsewhere} {
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []*Cluster{again, elsewhere} {
		assertNothingLeft(t, c.layout, before)
	}
}

// victimOptions are those of smokeOptions for a process that lets its state directory lie.
func victimOptions(state string) Options {
	return Options{State: state, StockScheduler: true, NoGPU: true, NoWebhook: true}
}

// startVictim starts a process that owns a cluster, and returns it with the number of the cluster's
// first process.
func startVictim(ctx context.Context, t *testing.T, o Options) (owner *exec.Cmd, first int) {
	t.Helper()
	owner = exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^TestVictim$", "-test.v")
	owner.Env = append(os.Environ(), victimState+"="+o.State)
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	owner.Stderr = os.Stderr
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if n, _ := fmt.Sscanf(lines.Text(), victimReady+"%d", &first); n == 1 {
			return owner, first
		}
		t.Log(lines.Text())
	}
	t.Fatal("the victim ended before its cluster ran")
	return nil, 0
}

// pidNamespace is the PID namespace of a cluster, as /proc names it.
type pidNamespace string

// namespaceOf returns the PID namespace of a process, and keeps the kernel from giving its name to
// another until the test ends.
func namespaceOf(t *testing.T, process int) pidNamespace {
	t.Helper()
	path := fmt.Sprintf("/proc/%d/ns/pid", process)
	held, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { held.Close() })
	name, err := os.Readlink(path)
	if own, _ := os.Readlink("/proc/self/ns/pid"); err != nil || own == name {
		t.Fatalf("the PID namespace of process %d is %q, that of this test %q: %v", process, name, own, err)
	}
	return pidNamespace(name)
}

// processes lists the processes of this machine that are in the namespace.
func (n pidNamespace) processes(t *testing.T) (in []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range all {
		if name, _ := os.Readlink(filepath.Join(process, "ns/pid")); name == string(n) {
			in = append(in, process)
		}
	}
	return in
}

// strayThreads lists the threads of this process that are in another mount namespace than the
// process.
func strayThreads(t *testing.T) (stray []string) {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	threads, err := filepath.Glob("/proc/self/task/*/ns/mnt")
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of this process: %v, %v", threads, err)
	}
	for _, thread := range threads {
		if name, err := os.Readlink(thread); err == nil && name != own {
			stray = append(stray, thread)
		}
	}
	return stray
}

// machine is what a sandbox could change of the machine around it: mounts, files outside its state
// directory, kernel settings, network devices.
type machine map[string]bool

// seen looks at the machine as it is before a sandbox with these options starts.
func seen(t *testing.T, o Options) machine {
	t.Helper()
	m := machine{}
	mounts, err := procfs.GetMounts()
	if err != nil {
		t.Fatal(err)
	}
	places := append([]string{o.State, kubeletDir, "/proc"}, hidden[:]...)
	for _, mount := range mounts {
		if slices.ContainsFunc(places, func(dir string) bool { return strings.HasPrefix(mount.MountPoint+"/", dir+"/") }) {
			m[fmt.Sprintf("mount of %s on %s", mount.Root, mount.MountPoint)] = true
		}
	}
	for _, dir := range append([]string{kubeletDir}, hidden[:]...) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			m["file "+filepath.Join(dir, e.Name())] = true
		}
	}
	for _, name := range sysctls {
		value, _ := os.ReadFile(filepath.Join("/proc/sys", name))
		m[name+" = "+string(value)] = true
	}
	return m
}

// networkDevices are those of the machine with an address that is for the pods of a sandbox. Other
// sandboxes that run have other addresses.
func networkDevices(t *testing.T, l layout) []string {
	t.Helper()
	devices, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	pods := netip.MustParsePrefix(l.subnet())
	var own []string
	for _, d := range devices {
		addresses, err := d.Addrs()
		if err != nil {
			continue // it has just gone
		}
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil && pods.Contains(prefix.Addr()) {
				own = append(own, d.Name)
			}
		}
	}
	return own
}

// assertUnchanged looks for what was not there before; it holds while a cluster runs too.
func (before machine) assertUnchanged(t *testing.T, o Options) {
	t.Helper()
	for what := range seen(t, o) {
		if !before[what] {
			t.Errorf("the machine has a new %s", what)
		}
	}
}

// assertNothingLeft looks for threads, mounts, cgroups, network devices and files of a stopped
// sandbox.
func assertNothingLeft(t *testing.T, l layout, before machine) {
	t.Helper()
	eventually(t, "no thread is in a cluster's namespace", func() bool { return len(strayThreads(t)) == 0 })
	before.assertUnchanged(t, Options{State: l.state})
	roots, err := cgroupHierarchies()
	if err != nil || len(roots) == 0 {
		t.Fatalf("cgroup hierarchies: %v, %v", roots, err)
	}
	for _, root := range roots {
		if exists(root + l.cgroup()) {
			t.Errorf("cgroup %s is left in %s", l.cgroup(), root)
		}
	}
	// The kernel removes the devices of a network namespace a moment after the namespace.
	eventually(t, "no network device is left", func() bool {
		return len(networkDevices(t, l)) == 0
	})
	files, err := os.ReadDir(l.state)
	if err != nil || len(files) != 2 || files[0].Name() != markerFile || files[1].Name() != "logs" {
		t.Errorf("the state directory holds %v (%v), want its mark and the logs", files, err)
	}
}
