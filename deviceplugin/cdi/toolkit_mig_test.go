// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// askForPartition makes a partition on the second device, asks the toolkit for it
// before and after it is destroyed, and prints the specification. The toolkit
// knows one place only for the table of capabilities.
func askForPartition(root string) error {
	if err := syscall.Mount("none", "/proc/driver", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("cannot mount here: %w", err)
	}
	gpus := driver.NewNVML(driver.LibraryLocation{})
	if err := gpus.Open(); err != nil {
		return err
	}
	table := filepath.Join(root, "state", "mig-minors")
	text, err := os.ReadFile(table)
	if err == nil {
		err = os.MkdirAll("/proc/driver/nvidia-caps", 0o755)
	}
	if err == nil {
		err = os.WriteFile("/proc/driver/nvidia-caps/mig-minors", text, 0o600)
	}
	if err != nil {
		return err
	}
	devices, err := gpus.Devices()
	if err != nil {
		return err
	}
	facts, err := devices[1].Facts()
	if err != nil {
		return err
	}
	gi, err := gpus.CreateGPUInstance(facts.UUID, "2g.12gb", 2)
	if err != nil {
		return err
	}
	c, err := gpus.CreateComputeInstance(facts.UUID, gi)
	if err != nil {
		return err
	}
	toolkit := newToolkit(&nvidia{cfg: ToolkitConfig{
		DriverRoot: "/host", SeenRoot: root, DevRoot: root, HookPath: "/usr/bin/nvidia-cdi-hook", Library: gpus,
		MIG: Capabilities{Minors: table, Root: filepath.Join(root, "dev", "nvidia-caps"), Devices: gpus},
	}})
	edits, err := toolkit.Edits(context.Background(), []sharing.DeviceID{sharing.DeviceID(c.UUID)})
	if err != nil {
		return err
	}
	common, err := toolkit.Common(context.Background())
	if err != nil {
		return err
	}
	spec, err := Spec("abc", common, edits, modes.Injection{})
	if err != nil {
		return err
	}
	if err := errors.Join(gpus.DestroyComputeInstance(facts.UUID, gi, c.CI), gpus.DestroyGPUInstance(facts.UUID, gi)); err != nil {
		return err
	}
	_, gone := toolkit.Edits(context.Background(), []sharing.DeviceID{sharing.DeviceID(c.UUID)})
	fmt.Printf("%s\x00%v\x00gpu1/gi%d", spec, gone, gi)
	return nil
}

func TestTheToolkitOpensAMIGDeviceWithItsTwoCapabilities(t *testing.T) {
	build, err := filepath.Abs("../../e2e/fakegpu/build")
	if err != nil {
		t.Fatal(err)
	}
	root, env := fakeMachine(t, build, "enabled")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(env, "TOOLKIT_TEST_MIG=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil && (cmd.ProcessState == nil || strings.Contains(problems.String(), "cannot mount here")) {
		t.Skipf("file systems cannot be mounted here: %v %s", err, problems.String())
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, problems.String())
	}
	answers := strings.Split(string(out), "\x00")
	if len(answers) != 3 {
		t.Fatalf("the answer is %s", out)
	}
	var spec specs.Spec
	if err := json.Unmarshal([]byte(answers[0]), &spec); err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile(filepath.Join(root, "state", "mig-minors"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/dev/nvidia1"}
	for _, capability := range []string{answers[2] + "/access", answers[2] + "/ci0/access"} {
		minor := regexp.MustCompile("(?m)^" + capability + " ([0-9]+)$").FindSubmatch(table)
		if minor == nil {
			t.Fatalf("the driver's table has no %s", capability)
		}
		want = append(want, "/dev/nvidia-caps/nvidia-cap"+string(minor[1]))
	}
	var got []string
	for _, n := range spec.Devices[0].ContainerEdits.DeviceNodes {
		if regexp.MustCompile("^/dev/nvidia([0-9]|-caps)").MatchString(n.Path) {
			got = append(got, n.Path)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("nodes are %v, want %v", got, want)
	}
	if !strings.Contains(answers[1], "find the nodes of device MIG-") {
		t.Errorf("of a partition that is destroyed the toolkit says %s", answers[1])
	}
}
