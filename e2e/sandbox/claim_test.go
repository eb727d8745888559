// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func claimed(t *testing.T, dir string, l layout) addressClaim {
	t.Helper()
	if err := os.MkdirAll(l.state, 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := claimAddresses(dir, l)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSandboxesThatStartAtOnceHaveDifferentAddresses(t *testing.T) {
	dir, states := t.TempDir(), t.TempDir()
	claims := make([]addressClaim, 100) // of 256 parts, so that many hashes are equal
	var all sync.WaitGroup
	for i := range claims {
		all.Go(func() { claims[i] = claimed(t, dir, layout{state: filepath.Join(states, fmt.Sprint(i))}) })
	}
	all.Wait()
	seen := map[int]int{}
	for i, c := range claims {
		if other, is := seen[c.part]; is {
			t.Errorf("sandboxes %d and %d both have part %d", other, i, c.part)
		}
		seen[c.part] = i
		_ = c.file.Close()
	}
}

func TestASandboxHasTheAddressesThatItHadTheLastTime(t *testing.T) {
	dir, l := t.TempDir(), layout{state: t.TempDir()}
	first := claimed(t, dir, l)
	second := claimed(t, dir, l) // as another one with the same hash
	if first.part == second.part {
		t.Fatalf("two sandboxes have part %d", first.part)
	}
	_ = first.file.Close() // its owner was killed
	if again := claimed(t, dir, l); again.part != first.part {
		t.Errorf("part %d, it was %d", again.part, first.part)
	}
	_ = second.file.Close()
}

func TestNoMoreSandboxesThanThereAreAddresses(t *testing.T) {
	dir, l := t.TempDir(), layout{state: t.TempDir()}
	all := make([]addressClaim, addressParts) // a lock whose file nobody has any more is given back
	for i := range all {
		all[i] = claimed(t, dir, l)
	}
	if c, err := claimAddresses(dir, l); err == nil {
		t.Errorf("one more has part %d", c.part)
	}
	for _, c := range all {
		_ = c.file.Close()
	}
}

func TestWhatIsLeftOfAKilledSandboxIsTakenBackUnlessItIsAnothers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changes the loopback device: run as root")
	}
	dir, l := t.TempDir(), layout{state: t.TempDir()}
	killed := claimed(t, dir, l)
	address := newServiceAddress(killed.part)
	if err := address.add(); err != nil {
		t.Fatal(err)
	}
	if err := releaseLeft(dir, l); err != nil || !address.isThere(t) {
		t.Fatalf("an address in use was taken away (%v)", err)
	}
	_ = killed.file.Close()
	if err := releaseLeft(dir, l); err != nil || address.isThere(t) {
		t.Errorf("the address of a killed sandbox is left (%v)", err)
	}
	for _, text := range []string{"", "x", "-1", "256"} {
		if err := os.WriteFile(l.addressesFile(), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := releaseLeft(dir, l); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
