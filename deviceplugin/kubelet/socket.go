// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// kubeletSocket is where the kubelet takes registrations, in its directory.
const kubeletSocket = "kubelet.sock"

// ListenAt listens on a socket, in place of an earlier process.
func ListenAt(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of an earlier process: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen at a socket: %w", err)
	}
	return listener, nil
}

// socketFile is one of the files that follow each other at a socket's path: whoever listens there
// makes a new one at each start. The zero value is none.
type socketFile struct{ os.FileInfo }

// socketAt is the file that is at a path now.
func socketAt(path string) socketFile {
	info, err := os.Lstat(path)
	if err != nil {
		return socketFile{}
	}
	return socketFile{info}
}

// isSameAs reports whether both are one file. A file system may give the number of a file that is
// gone to the next one, which is younger.
func (f socketFile) isSameAs(other socketFile) bool {
	return f.FileInfo != nil && other.FileInfo != nil && os.SameFile(f.FileInfo, other.FileInfo) && f.ModTime().Equal(other.ModTime())
}

// dialSocket makes a client of a socket, which connects when it is used. A process that was killed
// may accept a connection over its death, and a call then waits for the next attempt: gRPC would
// make it after a second, and the kubelet admits pods a second after its start.
func dialSocket(socket string) (*grpc.ClientConn, error) {
	soon := backoff.Config{BaseDelay: minRetryDelay, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second}
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: 5 * time.Second}))
}
