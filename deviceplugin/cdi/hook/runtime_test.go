// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
)

// program is the hook as it is built for the image. It is also what runs in the container: it needs
// no file but itself, and says a version.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "deviceshare-hook")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-X main.version=v1.2.3-of-the-test", "-o", path, "deviceshare/cmd/deviceshare-hook")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the hook: %v\n%s", err, out)
	}
	return path
}

// run runs a container with runc, the container runtime of most nodes, and returns what it printed.
// hook is the program of the hook, "" for none.
func (c *container) run(program, hook string) (string, error) {
	c.t.Helper()
	text, err := os.ReadFile(program)
	must(c.t, err)
	must(c.t, os.WriteFile(c.root("program"), text, 0o700))
	spec := oci.Spec{
		Version: "1.0.2",
		Root:    &oci.Root{Path: "rootfs"},
		Process: &oci.Process{Args: []string{"/program", "--version"}, Cwd: "/"},
		Mounts: []oci.Mount{
			{Destination: "/proc", Source: "proc", Type: "proc"},
			{Destination: preloadInside, Source: c.file, Type: "bind", Options: []string{"ro", "rbind", "rprivate"}},
		},
		Linux: &oci.Linux{Namespaces: []oci.LinuxNamespace{{Type: oci.PIDNamespace}, {Type: oci.MountNamespace}}},
	}
	if hook != "" {
		args := []string{"deviceshare-hook", "merge-preload", "--library=" + ours, "--file=" + c.file}
		spec.Hooks = &oci.Hooks{CreateRuntime: []oci.Hook{{Path: hook, Args: args}}}
	}
	text, err = json.Marshal(spec)
	must(c.t, err)
	c.configure(string(text))
	id := "deviceshare-hook-" + strconv.Itoa(os.Getpid()) + "-" + filepath.Base(filepath.Dir(filepath.Dir(c.bundle)))
	out, err := exec.Command("runc", "--root="+c.t.TempDir(), "run", "--bundle="+c.bundle, id).CombinedOutput()
	return string(out), err
}

// With the real container runtime: the hook sees the image and not our mount, and a container whose
// hook fails does not start.
func TestARealContainerKeepsWhatItsImagePreloadsOrDoesNotStart(t *testing.T) {
	if _, err := exec.LookPath("runc"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and runc")
	}
	it := program(t)
	if out, err := newContainer(t).run(it, ""); err != nil {
		t.Skipf("runc starts no containers here: %v\n%s", err, out)
	}
	const started = "v1.2.3-of-the-test"
	kept := newContainer(t)
	kept.image("# the image's\n/opt/a.so:/opt/b.so")
	if out, err := kept.run(it, it); err != nil || !strings.Contains(out, started) {
		t.Errorf("a container with a hook: %v\n%s", err, out)
	}
	kept.wants("/opt/a.so", "/opt/b.so")

	failing := newContainer(t)
	failing.image(strings.Repeat("/opt/a.so\n", 7000))
	missing := newContainer(t)
	forbidden := newContainer(t)
	locked := filepath.Join(t.TempDir(), "hook")
	must(t, os.WriteFile(locked, []byte("x"), 0o600))
	for want, try := range map[string]struct {
		c    *container
		hook string
	}{
		"deviceshare-hook: read what the image preloads by itself, /etc/ld.so.preload: it has more than 65536 bytes": {failing, it},
		"no such file or directory": {missing, it + ".gone"},
		"permission denied":         {forbidden, locked},
	} {
		out, err := try.c.run(it, try.hook)
		if err == nil || strings.Contains(out, started) || !strings.Contains(out, want) {
			t.Errorf("a container whose hook fails with %q: %v\n%s", want, err, out)
		}
		try.c.wants()
	}
}
