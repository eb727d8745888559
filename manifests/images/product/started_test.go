// SPDX-License-Identifier: Apache-2.0

package product

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// requireComplete looks at every program and library below a directory: all are for one
// architecture, and the libraries that they name are there.
func requireComplete(t *testing.T, root, arch string) {
	t.Helper()
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	have, need := map[string]bool{}, map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		have[d.Name()] = true
		f, err := elf.Open(path)
		if err != nil {
			return nil // a text
		}
		defer f.Close()
		if f.Machine != machine {
			t.Errorf("%s is for %v, want %v", path, f.Machine, machine)
		}
		libraries, err := f.ImportedLibraries()
		for _, l := range libraries {
			need[l] = append(need[l], path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for l, by := range need {
		// The driver's own library lies beside the one that stands in for it, in containers of
		// users.
		if !have[l] && !strings.HasSuffix(l, ".so.driver") {
			t.Errorf("the image lacks %s, which %v need", l, by)
		}
	}
}

// inside is a command that runs in a directory as its root, under qemu where it is for another
// architecture. It skips the test where this machine cannot run it.
func inside(t *testing.T, root, arch string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start a program in another root directory")
	}
	if arch == runtime.GOARCH {
		return inRoot(root, args...)
	}
	emulator := map[string]string{"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}[arch]
	path, err := exec.LookPath(emulator)
	if err != nil {
		t.Skipf("programs for %s do not start here: %s is missing (on Debian: apt-get install qemu-user-static)", arch, emulator)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, emulator), data, 0o755); err != nil {
		t.Fatal(err)
	}
	return inRoot(root, slices.Concat([]string{"/" + emulator}, args)...)
}

// inRoot is a command in another root directory, which is a mount point as in a container.
func inRoot(root string, args ...string) *exec.Cmd {
	const enter = `mount --bind "$0" "$0" && exec chroot "$0" "$@"`
	return exec.Command("unshare", slices.Concat([]string{"--mount", "sh", "-c", enter, root}, args)...)
}

func requireStarts(t *testing.T, root, arch string, p Product, program string) {
	t.Run("starts", func(t *testing.T) {
		cmd := inside(t, root, arch, program, "--version")
		if p.FIPS != "" {
			cmd.Env = append(os.Environ(), "GODEBUG=fips140=only")
		}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), p.Tag("v0.1.0")) {
			t.Errorf("%s --version: %v\n%s", program, err, out)
		}
	})
}

// requireNoOtherProgram: what could be run by somebody who gets into the container is the product's
// own program, and the loader of libraries.
func requireNoOtherProgram(t *testing.T, root string) {
	t.Helper()
	for _, dir := range []string{"bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin", "usr/libexec"} {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != "deviceshare-device-plugin" {
				t.Errorf("the image has the program %s/%s", dir, e.Name())
			}
		}
	}
}

// requireLooksForLibraries asks the device plugin where it takes the libraries from: they are
// there.
func requireLooksForLibraries(t *testing.T, root, arch string) {
	t.Run("finds the library", func(t *testing.T) {
		out, err := inside(t, root, arch, "/usr/bin/deviceshare-device-plugin", "--help").CombinedOutput()
		if want := `(default "/opt/deviceshare")`; err != nil || !strings.Contains(string(out), want) {
			t.Errorf("--help: %v, want %s in\n%s", err, want, out)
		}
		for _, place := range libraries {
			if info, err := os.Stat(filepath.Join(root, place)); err != nil || info.Size() == 0 || !strings.HasPrefix(place, "opt/deviceshare/") {
				t.Errorf("%s: %v", place, err)
			}
		}
	})
}

// requireStartsDaemons runs the keeper, which has only what is in the image to start the control
// program of MPS in the driver's root.
func requireStartsDaemons(t *testing.T, root, arch string) {
	t.Run("starts programs of the driver's root", func(t *testing.T) {
		if arch != runtime.GOARCH || os.Geteuid() != 0 {
			t.Skip("it starts other programs, which qemu does not see, and mounts, which only root can")
		}
		for _, dir := range []string{"proc", "dev", "driver/usr", "driver/dev/shm", "mps/GPU-1/pipe", "mps/GPU-1/log", "mps/GPU-1/shm"} {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		keeper := exec.Command("unshare", "--mount", "sh", "-c", keeperRoot, root, "/usr/bin/deviceshare-device-plugin", "keep",
			"--mps-keeper-socket=/state/mps.sock", "--mps-root=/mps", "--mps-control=control", "--driver-root=/driver")
		keeper.Stderr = os.Stderr
		if err := keeper.Start(); err != nil {
			t.Fatal(err)
		}
		answer := ask(t, filepath.Join(root, "state"), `{"version":1,"start":{"device":"GPU-1","directory":"/mps/GPU-1","multiUser":true,"partitioned":false}}`)
		if !strings.HasPrefix(answer, `{"version":1,"state":`) {
			t.Errorf("it answers %s", answer)
		}
		got, err := os.ReadFile(filepath.Join(root, "mps/GPU-1/log/ran"))
		if want := "-d -multiuser-server among /bin /dev /lib /lib64 /mps /usr\n"; err != nil || string(got) != want {
			t.Errorf("the program ran so: %q, %v; want %q", got, err, want)
		}
		if err := keeper.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := keeper.Wait(); err != nil {
			t.Errorf("the keeper ends so: %v", err)
		}
	})
}

// keeperRoot makes the root directory $0 like a container's with a driver's root in it, and runs a
// command there. The driver's control program is a script.
const keeperRoot = `set -e
mount --bind "$0" "$0"
mount --rbind /proc "$0/proc"
mount --rbind /dev "$0/dev"
mount --rbind /usr "$0/driver/usr"
mount -t tmpfs none "$0/driver/usr/local"
mkdir "$0/driver/usr/local/bin"
for l in bin lib lib64; do ln -sfn usr/$l "$0/driver/$l"; done
echo '#!/bin/sh
cd / && echo "$@" among /* > "$CUDA_MPS_LOG_DIRECTORY/ran"' > "$0/driver/usr/local/bin/control"
chmod 755 "$0/driver/usr/local/bin/control"
exec chroot "$0" "$@"`

// ask sends a line to the socket in a directory, as soon as somebody listens, and returns the
// answer.
func ask(t *testing.T, dir, line string) string {
	t.Helper()
	for end := time.Now().Add(10 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		answer, err := askOnce(dir, line)
		if err == nil {
			return answer
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func askOnce(dir, line string) (string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return "", err
	}
	defer d.Close()
	// The whole path is longer than that of a socket may be.
	conn, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/mps.sock", d.Fd()))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(line + "\n")); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}
