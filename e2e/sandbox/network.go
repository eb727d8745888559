// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
)

// ports are the TCP ports of one sandbox; all but the kubelet's are bound on 127.0.0.1.
type ports struct {
	API, EtcdClient, EtcdPeer              int
	ControllerManager, DefaultScheduler    int
	Kubelet, KubeletHealth                 int
	VolcanoHealth, VolcanoMetrics          int
	SchedulerHealth, SchedulerMetrics      int
	DevicePluginMetrics                    int
	Webhook, WebhookHealth, WebhookMetrics int
}

// all lists the fields of p for filling in.
func (p *ports) all() []*int {
	return []*int{&p.API, &p.EtcdClient, &p.EtcdPeer, &p.ControllerManager, &p.DefaultScheduler, &p.Kubelet, &p.KubeletHealth,
		&p.VolcanoHealth, &p.VolcanoMetrics, &p.SchedulerHealth, &p.SchedulerMetrics, &p.DevicePluginMetrics,
		&p.Webhook, &p.WebhookHealth, &p.WebhookMetrics}
}

// A sandbox has portsEach TCP ports from firstPort up, by its part (see addressClaim). All of them
// lie below the ports that Linux gives to connections (32768 and up, ip_local_port_range in ip(7)):
// one of those may be free when it is chosen and be a connection's when its server starts.
const (
	firstPort = 14336
	portsEach = 64
)

// portBlock gives out the ports of one sandbox. Its zero value has none.
type portBlock struct{ first, next, end int }

// portsOf is the block of a part.
func portsOf(part int) portBlock {
	first := firstPort + part*portsEach
	return portBlock{first: first, next: first, end: first + portsEach}
}

// take returns the next port that nobody listens at, whatever the address.
func (b *portBlock) take() (int, error) {
	for b.next < b.end {
		port := b.next
		b.next++
		l, err := net.Listen("tcp4", ":"+strconv.Itoa(port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("choose a free port: %w", err)
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("choose a free port: %d to %d are this sandbox's, and all are in use; "+
		"see who listens there with `ss -ltnp`", b.first, b.end-1)
}

// choosePorts takes a free port for each field.
func choosePorts(free *portBlock) (ports, error) {
	var p ports
	for _, field := range p.all() {
		port, err := free.take()
		if err != nil {
			return p, err
		}
		*field = port
	}
	return p, nil
}

// nodeAddress is an IPv4 address of this machine that is not a loopback address: the kubelet
// accepts no other. That of an API server beside this cluster goes away with it.
func nodeAddress() (string, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("find an address for the node: %w", err)
	}
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() && !allServices().Contains(netip.AddrFrom4([4]byte(n.IP.To4()))) {
			return n.IP.String(), nil
		}
	}
	return "", errors.New("find an address for the node: this machine has no IPv4 address but loopback; " +
		"add one with: ip addr add 10.89.0.1/32 dev lo")
}
