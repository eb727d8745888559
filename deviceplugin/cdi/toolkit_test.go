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
	"slices"
	"strings"
	"syscall"
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// TestMain lets the test binary ask the toolkit in a process whose dynamic linker
// finds the fake driver.
func TestMain(m *testing.M) {
	if root := os.Getenv("TOOLKIT_TEST_ROOT"); root != "" {
		ask := askToolkit
		if os.Getenv("TOOLKIT_TEST_MIG") != "" {
			ask = askForPartition
		}
		if err := ask(root); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// bound is a binding that stays the same.
type bound struct{ lib gonvml.Interface }

func (b bound) Library() gonvml.Interface { return b.lib }

// askToolkit prints the specification for the second device, and the driver's, twice.
func askToolkit(root string) error {
	lib := gonvml.New()
	if ret := lib.Init(); ret != gonvml.SUCCESS {
		return fmt.Errorf("nvmlInit: %d", ret)
	}
	device, ret := lib.DeviceGetHandleByIndex(1)
	if ret != gonvml.SUCCESS {
		return fmt.Errorf("device 1: %d", ret)
	}
	uuid, _ := device.GetUUID()
	toolkit := newToolkit(&nvidia{cfg: ToolkitConfig{DriverRoot: "/host", SeenRoot: root, DevRoot: root, HookPath: "/usr/bin/nvidia-cdi-hook", Library: bound{lib}}})
	for range 2 { // the second answer comes from memory
		edits, err := toolkit.Edits(context.Background(), []sharing.DeviceID{sharing.DeviceID(uuid)})
		if err != nil {
			return err
		}
		common, err := toolkit.Common(context.Background())
		if err != nil {
			return err
		}
		text, err := Spec("abc", common, edits, modes.Injection{})
		if err != nil {
			return err
		}
		driver, err := DriverSpec(common)
		if err != nil {
			return err
		}
		if _, err := os.Stdout.Write(slices.Concat(text, []byte{0}, driver, []byte{0})); err != nil {
			return err
		}
	}
	_, err := toolkit.Edits(context.Background(), []sharing.DeviceID{"GPU-nobody"})
	fmt.Println(err != nil)
	return nil
}

// fakeMachine makes a driver installation below a root of its own.
func fakeMachine(t *testing.T, build, mig string) (root string, env []string) {
	t.Helper()
	root = t.TempDir()
	libs := filepath.Join(root, "usr", "lib64")
	for _, dir := range []string{libs, filepath.Join(root, "dev"), filepath.Join(root, "state")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, lib := range []string{"libcuda.so", "libnvidia-ml.so"} {
		content, err := os.ReadFile(filepath.Join(build, lib+".1"))
		if err != nil {
			t.Skip("the fake driver is not built: make -C e2e/fakegpu")
		}
		if err := os.WriteFile(filepath.Join(libs, lib+".580.95.05"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(lib+".580.95.05", filepath.Join(libs, lib+".1")); err != nil {
			t.Fatal(err)
		}
	}
	topology := "fakegpu 1\ndriver 580.95.05 cuda 13.0\n" + strings.Repeat(
		"gpu model=\"NVIDIA A30\" memory=24576MiB cc=8.0 numa=0 mig="+mig+" pci=0000:%02x:00.0 sms=56\n", 2)
	if err := os.WriteFile(filepath.Join(root, "state", "topology"), []byte(fmt.Sprintf(topology, 7, 15)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, minor := range map[string]int{"nvidia0": 0, "nvidia1": 1, "nvidiactl": 255} {
		if err := syscall.Mknod(filepath.Join(root, "dev", name), syscall.S_IFCHR|0o666, 195<<8|minor); err != nil {
			t.Skipf("device nodes cannot be made here: %v", err)
		}
	}
	return root, append(os.Environ(), "TOOLKIT_TEST_ROOT="+root, "LD_LIBRARY_PATH="+libs,
		"FAKEGPU_DIR="+filepath.Join(root, "state"), "FAKEGPU_DEV="+filepath.Join(root, "dev"))
}

func TestTheToolkitBringsTheDriverAndTheOneDevice(t *testing.T) {
	build, err := filepath.Abs("../../e2e/fakegpu/build")
	if err != nil {
		t.Fatal(err)
	}
	root, env := fakeMachine(t, build, "none")
	cmd := exec.Command(os.Args[0])
	cmd.Env = env
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, problems.String())
	}
	answers := strings.Split(string(out), "\x00")
	if len(answers) != 5 || answers[0] != answers[2] || answers[1] != answers[3] || strings.TrimSpace(answers[4]) != "true" {
		t.Fatalf("the answers differ, or an unknown device was served:\n%s", out)
	}
	var own, driver specs.Spec
	if err := errors.Join(json.Unmarshal([]byte(answers[0]), &own), json.Unmarshal([]byte(answers[1]), &driver)); err != nil {
		t.Fatal(err)
	}
	edits := own.Devices[0].ContainerEdits
	common := driver.Devices[0].ContainerEdits
	nodes := map[string]bool{}
	for _, n := range slices.Concat(edits.DeviceNodes, common.DeviceNodes) {
		nodes[n.Path] = true
	}
	if !nodes["/dev/nvidia1"] || nodes["/dev/nvidia0"] || !nodes["/dev/nvidiactl"] {
		t.Errorf("nodes are %v, want the one device and the control node", nodes)
	}
	mounted := false
	for _, m := range slices.Concat(edits.Mounts, common.Mounts) {
		mounted = mounted || m.HostPath == "/host/usr/lib64/libcuda.so.580.95.05"
		if strings.HasPrefix(m.HostPath, root) {
			t.Errorf("mount %s is a path of this process, not of the host", m.HostPath)
		}
	}
	if !mounted || len(common.Hooks) == 0 {
		t.Errorf("mounts %+v, hooks %+v: want libcuda and the linker's cache", edits.Mounts, common.Hooks)
	}
}
