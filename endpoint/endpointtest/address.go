// SPDX-License-Identifier: Apache-2.0

package endpointtest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// FreeAddress is a host and port of this machine at which nothing listens, for a program that is
// told where to listen. The host is one of the 16 million of 127.0.0.0/8, by chance: a port of
// 127.0.0.1 that is free now may be a connection's, or another test's, when the program starts.
func FreeAddress(t testing.TB) string {
	t.Helper()
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	l, err := net.Listen("tcp4", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}
