// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// apiPort is the port at which pods reach the API server: that of the Service kubernetes, which the
// API server makes for itself at the first address of the services' range.
const apiPort = 443

// allServices is the range of the Services of all sandboxes on a machine, the one that kubeadm
// takes by default.
func allServices() netip.Prefix { return netip.MustParsePrefix("10.96.0.0/16") }

// serviceAddress is an address of the loopback device, so that the API server of one cluster can
// listen where its Service kubernetes is. Nothing in the cluster has to translate addresses then.
type serviceAddress struct {
	alias   string // name of the address at the device
	address netip.Addr
}

func newServiceAddress(part int) serviceAddress {
	return serviceAddress{alias: fmt.Sprintf("lo:ds%d", part), address: servicesOf(part).Addr().Next()}
}

// add gives the address to the device. It may be there from a cluster whose owner was killed.
func (s serviceAddress) add() error {
	if err := s.set(unix.SIOCSIFADDR, s.address); err != nil {
		return fmt.Errorf("give the loopback device the address %s of the Service kubernetes: %w", s.address, err)
	}
	if err := s.set(unix.SIOCSIFNETMASK, netip.AddrFrom4([4]byte{255, 255, 255, 255})); err != nil {
		return fmt.Errorf("set the netmask of %s at the loopback device: %w", s.address, err)
	}
	return nil
}

// remove takes the address away, if it is there.
func (s serviceAddress) remove() error {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("list this machine's addresses: %w", err)
	}
	is := func(a net.Addr) bool { return a.String() == netip.PrefixFrom(s.address, 32).String() }
	if !slices.ContainsFunc(all, is) {
		return nil
	}
	if err := s.set(unix.SIOCSIFADDR, netip.AddrFrom4([4]byte{})); err != nil {
		return fmt.Errorf("take the address %s from the loopback device: %w", s.address, err)
	}
	return nil
}

// set is one ioctl of netdevice(7) on the named address.
func (s serviceAddress) set(request uint, value netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq(s.alias)
	if err != nil {
		return err
	}
	v := value.As4()
	if err := r.SetInet4Addr(v[:]); err != nil {
		return err
	}
	return unix.IoctlIfreq(fd, request, r)
}
