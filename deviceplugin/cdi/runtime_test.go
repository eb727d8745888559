// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtime is a container runtime that says what it is told to.
type runtime struct {
	cri.UnimplementedRuntimeServiceServer
	name string
	info map[string]string
	err  error
}

func (r *runtime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: r.name}, r.err
}

func (r *runtime) Status(_ context.Context, q *cri.StatusRequest) (*cri.StatusResponse, error) {
	if !q.GetVerbose() {
		return &cri.StatusResponse{}, r.err
	}
	return &cri.StatusResponse{Info: r.info}, r.err
}

func (r *runtime) serve(t *testing.T, socket string) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
}

func TestTheRuntimeIsAskedWhetherItReadsOurSpecifications(t *testing.T) {
	config := func(text string) *runtime {
		return &runtime{info: map[string]string{"config": text, "golang": "go1.24"}}
	}
	for name, c := range map[string]struct {
		runtime  *runtime
		why      string
		isSilent bool
		isWrong  bool
	}{
		"it does":                  {runtime: config(`{"containerd":{},"enableCDI":true,"cdiSpecDirs":["/etc/cdi","/var/run/cdi"]}`)},
		"by another name":          {runtime: config(`{"enableCDI":true,"cdiSpecDirs":["/run/cdi/"]}`)},
		"CDI is off":               {runtime: config(`{"enableCDI":false,"cdiSpecDirs":["/var/run/cdi"]}`), why: "set enable_cdi = true"},
		"they lie nowhere":         {runtime: config(`{"enableCDI":true}`), why: "add it to cdi_spec_dirs"},
		"they lie elsewhere":       {runtime: config(`{"enableCDI":true,"cdiSpecDirs":["/etc/cdi"]}`), why: "run/cdi: add it to cdi_spec_dirs"},
		"it has no such setting":   {runtime: config(`{"sandboxImage":"pause"}`), isSilent: true},
		"it is CRI-O":              {runtime: &runtime{name: "cri-o", info: map[string]string{"sandboxImage": "pause"}}},
		"it is of another kind":    {runtime: &runtime{name: "docker"}, isSilent: true},
		"it has no settings":       {runtime: &runtime{}, isSilent: true},
		"its settings are no JSON": {runtime: config(`{"enableCDI":`), isWrong: true},
		"they are a list":          {runtime: config(`[]`), isWrong: true},
		"of another type":          {runtime: config(`{"enableCDI":"yes"}`), isWrong: true},
		"null":                     {runtime: config(`null`), isSilent: true},
		"it does not answer":       {runtime: &runtime{err: errors.New("starting")}, isWrong: true},
		"there is none":            {isSilent: true},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			specs := filepath.Join(root, "run", "cdi")
			for _, err := range []error{os.MkdirAll(specs, 0o700), os.MkdirAll(filepath.Join(root, "etc", "cdi"), 0o700), os.Mkdir(filepath.Join(root, "var"), 0o700),
				os.Symlink("/run", filepath.Join(root, "var", "run"))} { // as the host has it, not we
				if err != nil {
					t.Fatal(err)
				}
			}
			if c.runtime != nil {
				c.runtime.serve(t, filepath.Join(root, "s"))
			}
			asked := Runtime{Root: root, Sockets: []string{"/other", "/s"}, Specs: specs, Patience: time.Minute}
			why, err := asked.Ignores(context.Background())
			isSilent := errors.Is(err, ErrRuntimeSilent)
			if (why != "") != (c.why != "") || !strings.Contains(why, c.why) || isSilent != c.isSilent || (err != nil && !isSilent) != c.isWrong {
				t.Errorf("got %q, %v", why, err)
			}
		})
	}
}

func TestAProcessIsSealedByItsOwnAllocation(t *testing.T) {
	own := sealMount("0123").ContainerPath
	for name, c := range map[string]struct {
		points []string
		want   bool
	}{
		"its own":                            {[]string{"/", "/proc", own}, true},
		"in an image in which /run leads on": {[]string{"/", "/var" + own}, true},
		"that of another":                    {[]string{"/", sealMount("0124").ContainerPath}, false},
		"none":                               {[]string{"/", "/run"}, false},
		"nothing":                            {nil, false},
	} {
		if got := IsSealed(c.points, "0123"); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
