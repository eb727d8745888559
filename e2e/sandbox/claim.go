// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// addressParts is how many sandboxes can run at once on a machine. They share its routes and its
// loopback device, so each has a part of the addresses of pods and of Services.
const addressParts = 256

// claimsDir has a lock for each part of the addresses.
const claimsDir = "/run/deviceshare-sandbox"

// addressClaim is a part of the addresses that no other sandbox takes until it is released, or its
// owner has ended.
type addressClaim struct {
	part int
	file *os.File
}

// claimAddresses takes a part that nobody has, and writes down in the state directory which one it
// is. Only where the first one is taken does a sandbox have other addresses than the last time.
func claimAddresses(dir string, l layout) (addressClaim, error) {
	first := int(l.hash() % addressParts)
	for i := range addressParts {
		part := (first + i) % addressParts
		file, err := lockPart(dir, part)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return addressClaim{}, fmt.Errorf("choose addresses: %w", err)
		}
		if err := os.WriteFile(l.addressesFile(), fmt.Appendln(nil, part), 0o644); err != nil {
			return addressClaim{}, errors.Join(fmt.Errorf("choose addresses: %w", err), file.Close())
		}
		return addressClaim{part, file}, nil
	}
	return addressClaim{}, fmt.Errorf("choose addresses: %d sandboxes run on this machine; stop one of them", addressParts)
}

// release gives the part back.
func (c addressClaim) release() error {
	if c.file == nil {
		return nil
	}
	return errors.Join(newServiceAddress(c.part).remove(), c.file.Close())
}

// releaseLeft takes back the address of a cluster whose owner was killed, unless another sandbox
// has that part by now.
func releaseLeft(dir string, l layout) error {
	text, err := os.ReadFile(l.addressesFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the addresses that are left: %w", err)
	}
	part, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || part < 0 || part >= addressParts {
		return nil // cut off while it was written: no address was given to the device yet
	}
	file, err := lockPart(dir, part)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("take addresses back: %w", err)
	}
	return addressClaim{part, file}.release()
}

// lockPart takes the lock of a part. It is EWOULDBLOCK that another sandbox has it.
func lockPart(dir string, part int) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(part)), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
