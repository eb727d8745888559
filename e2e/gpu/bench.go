// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"deviceshare/e2e/report"
)

// Where the library looks inside a container; here the machine is the container.
const (
	containerDir = "/usr/local/vgpu"
	limitsFile   = containerDir + "/limits"
	regionDir    = "/tmp/vgpu"
	oneRun       = 2 * time.Minute
)

// bench runs programs with and without the library in front of the driver.
type bench struct {
	library, client, plugin string
	device, uuid            string
	total                   int64 // bytes, as the bare driver reports
}

func newBench(dir string) (*bench, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	b := &bench{
		library: filepath.Join(abs, "libvgpu.so"), client: filepath.Join(abs, "cudaclient"),
		plugin: filepath.Join(abs, "deviceshare-device-plugin"),
	}
	for _, path := range []string{b.library, b.client} {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%w; run `make gpu`", err)
		}
	}
	b.clean()
	out, err := b.bare("info")
	if err != nil {
		return nil, fmt.Errorf("ask the driver for its devices: %w\n%s", err, out)
	}
	b.uuid, b.device = report.Field(out, "info index=0", "uuid"), out
	b.total, err = strconv.ParseInt(report.Field(out, "info index=0", "total"), 10, 64)
	if err != nil || b.uuid == "" {
		return nil, fmt.Errorf("the driver shows no device:\n%s", out)
	}
	return b, os.MkdirAll(containerDir, 0o755)
}

// clean removes limits and region of the experiment before.
func (b *bench) clean() {
	_ = os.Remove(limitsFile)
	_ = os.RemoveAll(regionDir)
	_ = os.MkdirAll(regionDir, 0o777)
}

// limit writes the limits file for the first device.
func (b *bench) limit(memory int64, cores int) error {
	text := fmt.Sprintf("vgpu-limits 1\nregion %s/vgpu.cache\npolicy default\npriority 1\ndevice 0 %s memory=%d cores=%d\n",
		regionDir, b.uuid, memory, cores)
	return os.WriteFile(limitsFile, []byte(text), 0o644)
}

// bare runs the client on the driver alone, with the library in front of it.
func (b *bench) bare(steps ...string) (string, error) { return run(nil, b.client, steps...) }

func (b *bench) with(steps ...string) (string, error) {
	return run([]string{"LD_PRELOAD=" + b.library}, b.client, steps...)
}

// run returns what a program prints on both streams.
func run(env []string, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), oneRun)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w", filepath.Base(program), strings.Join(args, " "), err)
	}
	return out.String(), nil
}
