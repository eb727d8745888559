// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
)

// connectionPorts are the first and the last port that this kernel gives to connections.
func connectionPorts(t *testing.T) (int, int) {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	var both [2]int
	for i, word := range strings.Fields(string(text)) {
		if both[i], err = strconv.Atoi(word); err != nil {
			t.Fatal(err)
		}
	}
	return both[0], both[1]
}

func TestNoConnectionTakesAPortThatASandboxChose(t *testing.T) {
	low, _ := connectionPorts(t)
	if low < 32768 {
		t.Skipf("this kernel gives the ports from %d up to connections; Linux as it comes those from 32768 up", low)
	}
	for part := range addressParts {
		if b := portsOf(part); b.first < 1024 || b.end > low {
			t.Errorf("part %d has the ports from %d to %d", part, b.first, b.end-1)
		}
		if part > 0 && portsOf(part-1).end > portsOf(part).first {
			t.Errorf("parts %d and %d share ports", part-1, part)
		}
	}
}

// TestAPortInUseIsNotChosen listens at every second port of the last part, in turn on one address
// and on all.
func TestAPortInUseIsNotChosen(t *testing.T) {
	b := portsOf(addressParts - 1)
	inUse := map[int]bool{}
	for port := b.first; port < b.end; port += 2 {
		host := ""
		if port%4 == 0 {
			host = "127.0.0.1"
		}
		l, err := net.Listen("tcp4", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		inUse[port] = true
	}
	chosen := map[int]bool{}
	p, err := choosePorts(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range p.all() {
		if inUse[*port] || chosen[*port] {
			t.Errorf("port %d was chosen; in use before: %v", *port, inUse[*port])
		}
		chosen[*port] = true
	}
	for {
		port, err := b.take()
		if err != nil {
			if want := strconv.Itoa(b.first); !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "ss -ltnp") {
				t.Errorf("the error does not say what to do: %v", err)
			}
			break
		}
		if inUse[port] || chosen[port] {
			t.Fatalf("port %d was chosen", port)
		}
		chosen[port] = true
	}
	if len(chosen) != portsEach/2 {
		t.Errorf("%d ports were chosen, %d were free", len(chosen), portsEach/2)
	}
}
