// SPDX-License-Identifier: Apache-2.0

package timeslicing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"deviceshare/sharing"
)

// Slice is how long one process has the device before the driver gives it to the
// next, in the steps of nvidia-smi compute-policy; 0 is the driver's own choice.
type Slice int

// sliceNames are the steps in the order of their numbers.
func sliceNames() []string { return []string{"default", "short", "medium", "long"} }

// ParseSlice reads the name of a step.
func ParseSlice(name string) (Slice, error) {
	if i := slices.Index(sliceNames(), name); i >= 0 {
		return Slice(i), nil
	}
	return 0, fmt.Errorf("unknown time slice %q: want one of %s", name, strings.Join(sliceNames(), ", "))
}

// String is the name of the step.
func (s Slice) String() string {
	if s >= 0 && int(s) < len(sliceNames()) {
		return sliceNames()[s]
	}
	return "slice " + strconv.Itoa(int(s))
}

// ErrRefused is the answer of a driver that does not set the slice.
var ErrRefused = errors.New("the driver refuses the time slice")

// Tool sets the slice of a device. NVML has no public call for it: its scheduler
// calls are about virtual machines, and nvidia-smi uses one that is not documented.
type Tool interface {
	// SetSlice is ErrRefused where the driver or the device cannot do it.
	SetSlice(ctx context.Context, id sharing.DeviceID, s Slice) error
}

// SMI is nvidia-smi on this host. It implements Tool.
type SMI struct {
	// Path is the program, as seen below Root.
	Path string
	// Root is where the driver's installation is; "/" or "" when it is this
	// process's own.
	Root string
}

// FindSMI finds nvidia-smi below the root of the driver, else on PATH.
func FindSMI(driverRoot string) (SMI, error) {
	const name = "/usr/bin/nvidia-smi"
	if info, err := os.Stat(filepath.Join(driverRoot, name)); err == nil && info.Mode()&0o111 != 0 {
		return SMI{Path: name, Root: driverRoot}, nil
	}
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return SMI{}, fmt.Errorf("find nvidia-smi, which sets time slices: %w", err)
	}
	return SMI{Path: path}, nil
}

// smiPatience bounds one call of nvidia-smi; it takes seconds where the driver is
// not kept loaded.
const smiPatience = 20 * time.Second

// SetSlice implements Tool.
func (t SMI) SetSlice(ctx context.Context, id sharing.DeviceID, s Slice) error {
	ctx, cancel := context.WithTimeout(ctx, smiPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.Path, "compute-policy", "-i", string(id), "--set-timeslice="+strconv.Itoa(int(s)))
	if t.Root != "" && t.Root != "/" {
		cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Chroot: t.Root}, "/"
	}
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("nvidia-smi compute-policy: %w", ctx.Err())
	case errors.As(err, &exit):
		return fmt.Errorf("nvidia-smi compute-policy: %w: %s", ErrRefused, strings.TrimSpace(string(text)))
	case err != nil:
		return fmt.Errorf("nvidia-smi compute-policy: %w", err)
	}
	return nil
}
