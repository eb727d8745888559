// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"net"
	"os"
	"slices"
	"testing"
)

func TestSandboxesHaveDifferentAddressesForTheirAPIServers(t *testing.T) {
	a, b := newServiceAddress(0), newServiceAddress(addressParts-1)
	if a.address == b.address || a.alias == b.alias {
		t.Errorf("two sandboxes share %+v", a)
	}
	for _, s := range []serviceAddress{a, b} {
		if !allServices().Contains(s.address) {
			t.Errorf("%s is outside of the services' range %s", s.address, allServices())
		}
	}
}

func TestAServiceAddressIsThereUntilItIsRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changes the loopback device: run as root")
	}
	c := claimed(t, claimsDir, layout{state: t.TempDir()}) // not that of a cluster that runs meanwhile
	defer func() {
		if err := c.release(); err != nil {
			t.Error(err)
		}
	}()
	s := newServiceAddress(c.part)
	for range 2 { // the second time it is there already, or gone already
		if err := s.add(); err != nil {
			t.Fatal(err)
		}
	}
	if !s.isThere(t) {
		t.Errorf("%s is not there", s.address)
	}
	if node, err := nodeAddress(); err != nil || node == s.address.String() {
		t.Errorf("the node takes the address %s, which goes away with another cluster (%v)", node, err)
	}
	for range 2 {
		if err := s.remove(); err != nil {
			t.Fatal(err)
		}
	}
	if s.isThere(t) {
		t.Errorf("%s is left", s.address)
	}
}

// isThere reports whether the loopback device has the address.
func (s serviceAddress) isThere(t *testing.T) bool {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(all, func(a net.Addr) bool { return a.String() == s.address.String()+"/32" })
}
