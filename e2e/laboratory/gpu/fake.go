// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// The fake card resembles the one the suite was written for, so that amounts are alike.
const fakeTopology = `fakegpu 1
driver 580.159.04 cuda 13.0
gpu model="Fake H200" memory=143155MiB cc=9.0 pci=0000:07:00.0 sms=132
`

// fakeDriver is where `make -C e2e/fakegpu` puts the fake driver.
const fakeDriver = "e2e/fakegpu/build"

// fakeMachine makes a machine with one fake device below dir; the environment in which
// programs find it.
func fakeMachine(dir string) ([]string, error) {
	driver, err := filepath.Abs(fakeDriver)
	if err != nil {
		return nil, fmt.Errorf("find the fake driver: %w", err)
	}
	if _, err := os.Stat(filepath.Join(driver, "libcuda.so.1")); err != nil {
		return nil, fmt.Errorf("find the fake driver: %w; run `make gpu-dry` at the top of the source tree", err)
	}
	state := filepath.Join(dir, "fakegpu")
	if err := os.MkdirAll(state, 0o755); err != nil {
		return nil, fmt.Errorf("make the fake machine: %w", err)
	}
	if err := os.WriteFile(filepath.Join(state, "topology"), []byte(fakeTopology), 0o644); err != nil {
		return nil, fmt.Errorf("make the fake machine: %w", err)
	}
	if err := os.Symlink("/dev/null", filepath.Join(state, "nvidia0")); err != nil {
		return nil, fmt.Errorf("make the fake device: %w", err)
	}
	return []string{"FAKEGPU_DIR=" + state, "FAKEGPU_DEV=" + state, "FAKEGPU_CONTEXT=518", "LD_LIBRARY_PATH=" + driver}, nil
}
