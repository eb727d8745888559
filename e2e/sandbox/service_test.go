// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
)

func TestSandboxesHaveDifferentAddressesForTheirAPIServers(t *testing.T) {
	a, b := newServiceAddress(layout{state: "/a"}), newServiceAddress(layout{state: "/b"})
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
	var s serviceAddress
	has := func() bool {
		all, err := net.InterfaceAddrs()
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(all, func(a net.Addr) bool { return a.String() == s.address.String()+"/32" })
	}
	for i := 0; s.alias == "" || has(); i++ { // not that of a cluster that runs meanwhile
		s = newServiceAddress(layout{state: fmt.Sprintf("/test-%d", i)})
	}
	for range 2 { // the second time it is there already, or gone already
		if err := s.add(); err != nil {
			t.Fatal(err)
		}
	}
	if !has() {
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
	if has() {
		t.Errorf("%s is left", s.address)
	}
}
