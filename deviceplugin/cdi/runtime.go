// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	securejoin "github.com/cyphar/filepath-securejoin"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ErrRuntimeSilent: no container runtime says whether it reads CDI specifications.
var ErrRuntimeSilent = errors.New("the container runtime does not say whether it reads CDI specifications")

// Runtime is the container runtime of the node.
type Runtime struct {
	// Specs is the directory with our specifications, as this process names it.
	Specs string
	// Sockets are where it may listen, as the host names them; the first that exists is asked.
	Sockets []string
	// Root is the root of the host. That of its first process is within reach of whoever may see
	// it.
	Root string
	// Patience is how long an answer may take.
	Patience time.Duration
}

// DefaultRuntime is that of a common distribution: containerd, CRI-O, k3s or k0s.
func DefaultRuntime() Runtime {
	return Runtime{
		Specs: "/var/run/cdi", Root: "/proc/1/root", Patience: 2 * time.Second,
		Sockets: []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock", "/run/k0s/containerd.sock"},
	}
}

// AddFlags adds the flags that describe it.
func (r *Runtime) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&r.Specs, "cdi-dir", r.Specs, "where the container runtime looks for CDI specifications")
	f.StringSliceVar(&r.Sockets, "runtime-sockets", r.Sockets,
		"sockets of the host on which the container runtime may listen; it is asked whether it reads CDI specifications")
}

// Check returns every mistake in the flags.
func (r *Runtime) Check() []error {
	var wrong []error
	if !filepath.IsAbs(r.Specs) {
		wrong = append(wrong, fmt.Errorf("--cdi-dir=%q: want an absolute path", r.Specs))
	}
	for _, s := range r.Sockets {
		if !filepath.IsAbs(s) {
			wrong = append(wrong, fmt.Errorf("--runtime-sockets=%q: want absolute paths", s))
		}
	}
	return wrong
}

// Ignores says why the runtime starts containers without what our specifications bring; empty if it
// vouches that it does not. It is ErrRuntimeSilent if that cannot be known, and another error if
// the runtime does not answer.
func (r Runtime) Ignores(ctx context.Context) (why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	client, end, err := r.dial()
	if err != nil {
		return "", err
	}
	defer end()
	settings, err := client.readSettings(ctx)
	if err != nil {
		return "", err
	}
	why, err = r.containerdIgnores(settings)
	if !errors.Is(err, ErrRuntimeSilent) {
		return why, err
	}
	version, err := client.Version(ctx, &cri.VersionRequest{})
	switch {
	case err != nil:
		return "", client.wrapError(err)
	case version.GetRuntimeName() == alwaysReads:
		return "", nil
	}
	return "", ErrRuntimeSilent
}

// client asks the container runtime that listens on a socket.
type client struct {
	cri.RuntimeServiceClient
	socket string
}

// dial finds the container runtime. end ends the connection.
func (r Runtime) dial() (c client, end func(), err error) {
	socket, found := r.findSocket()
	if !found {
		return client{}, nil, ErrRuntimeSilent
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return client{}, nil, client{socket: socket}.wrapError(err)
	}
	return client{cri.NewRuntimeServiceClient(conn), socket}, func() { _ = conn.Close() }, nil
}

func (c client) wrapError(err error) error {
	return fmt.Errorf("ask the container runtime at %s: %w", c.socket, err)
}

// readSettings is what the runtime says of how it is set, in a form of its own; empty if it says
// nothing.
func (c client) readSettings(ctx context.Context) (string, error) {
	status, err := c.Status(ctx, &cri.StatusRequest{Verbose: true})
	if err != nil {
		return "", c.wrapError(err)
	}
	return status.GetInfo()["config"], nil
}

// alwaysReads is the name of CRI-O. It has read CDI specifications since 1.23 and cannot be told
// not to.
const alwaysReads = "cri-o"

// findSocket is the first that exists, as this process names it.
func (r Runtime) findSocket() (string, bool) {
	for _, s := range r.Sockets {
		path, err := r.onHost(s)
		if err != nil {
			continue
		}
		if _, err := os.Stat(path); err == nil {
			return path, true
		}
	}
	return "", false
}

// onHost is a path of the host as this process names it: links lead to places of the host.
func (r Runtime) onHost(path string) (string, error) { return securejoin.SecureJoin(r.Root, path) }

// containerdIgnores reads the settings of containerd 1.7 or 2.
func (r Runtime) containerdIgnores(settings string) (why string, err error) {
	var containerd struct {
		EnableCDI *bool    `json:"enableCDI"`
		SpecDirs  []string `json:"cdiSpecDirs"`
	}
	switch err := json.Unmarshal([]byte(settings), &containerd); {
	case settings == "" || err == nil && containerd.EnableCDI == nil:
		return "", ErrRuntimeSilent
	case err != nil:
		return "", fmt.Errorf("read the settings of the container runtime: %w", err)
	case !*containerd.EnableCDI:
		return "containerd reads no CDI specifications, so containers would start without their devices and limits: " +
			"set enable_cdi = true in its configuration and restart it", nil
	case !slices.ContainsFunc(containerd.SpecDirs, r.isSpecs):
		return fmt.Sprintf("containerd reads CDI specifications in %q and not in %s: add it to cdi_spec_dirs in its configuration and restart it, or set --cdi-dir",
			containerd.SpecDirs, r.Specs), nil
	}
	return "", nil
}

// isSpecs reports whether a directory is that of our specifications, by whatever name.
func (r Runtime) isSpecs(directory string) bool {
	path, err := r.onHost(directory)
	if err != nil {
		return false
	}
	theirs, err := os.Stat(path)
	if err != nil {
		return false
	}
	ours, err := os.Stat(r.Specs)
	return err == nil && os.SameFile(theirs, ours)
}
