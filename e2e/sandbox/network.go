// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
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

// choosePorts asks the kernel for free ports. All are held open until the last is known, so that
// they differ.
func choosePorts() (ports, error) {
	var p ports
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	for _, field := range p.all() {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return p, fmt.Errorf("choose free ports: %w", err)
		}
		held = append(held, l)
		*field = l.Addr().(*net.TCPAddr).Port
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
