// SPDX-License-Identifier: Apache-2.0

package limitsnode

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/nodeapi"
	"deviceshare/sharing/nodeapi/hostnode"
)

func TestADemandFileThatItsContainerMadeHugeIsNotRead(t *testing.T) {
	dir := t.TempDir()
	library := filepath.Join(dir, "libvgpu.so")
	if err := os.WriteFile(library, []byte("the library"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &nodeapi.Claim{ID: "c", Owner: "uid", Container: "main", Devices: []nodeapi.ClaimedDevice{{
		Share: sharing.Share{Device: "GPU-a", Memory: sharing.GiB, Cores: 30},
	}}}
	w := New(hostnode.OS{}, filepath.Join(dir, "state"), library)
	if _, err := w.Write(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	demand := filepath.Join(w.neighbours(), neighbour(directory(c.Owner, c.Container))+".demand")
	if err := os.Truncate(demand, 1<<40); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(context.Background(), c); err != nil {
		t.Error(err)
	}
}
