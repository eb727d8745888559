// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"path/filepath"
)

// kubeletDir is where a kubelet keeps its device-plugin directory, whatever its flags say. The
// cluster sees a directory below the state directory in its place.
const kubeletDir = "/var/lib/kubelet"

// layout names every path of one sandbox. It is a value; nothing is created by making one.
type layout struct {
	repo  string
	state string
	// part is which part of the addresses is this sandbox's: see addressClaim.
	part int
}

func (l layout) in(parts ...string) string {
	return filepath.Join(append([]string{l.state}, parts...)...)
}

// bin is the path of a built binary, race the same built with the race detector.
func (l layout) bin(name string) string { return filepath.Join(l.repo, ".sandbox", "bin", name) }
func (l layout) race(name string) string {
	return filepath.Join(l.repo, ".sandbox", "bin", "race", name)
}

// runtime is the directory of containerd, its shim, ctr and the CNI plugins.
func (l layout) runtime() string { return l.bin("runtime") }

// kubernetesModule is the go.mod of another version's control plane.
func (l layout) kubernetesModule(version string) string {
	return filepath.Join(l.repo, ".sandbox", "kubernetes", version, "go.mod")
}

// image is the tar file of an image.
func (l layout) image(name string) string {
	return filepath.Join(l.repo, ".sandbox", "images", name+".tar")
}

func (l layout) log(component string) string   { return l.in("logs", component+".log") }
func (l layout) kubeconfig(user string) string { return l.in("pki", user+".kubeconfig") }
func (l layout) cert(name string) string       { return l.in("pki", name+".crt") }
func (l layout) key(name string) string        { return l.in("pki", name+".key") }
func (l layout) webhookDir() string            { return l.in("webhook") }
func (l layout) lockFile() string              { return l.state + ".lock" }
func (l layout) statusFile() string            { return l.in("status.json") }
func (l layout) addressesFile() string         { return l.in("addresses") }
func (l layout) adminKubeconfig() string       { return l.in("kubeconfig") }
func (l layout) auditLog() string              { return l.in("logs", "audit.log") }
func (l layout) containerdSocket() string      { return l.in("ctd.sock") }
func (l layout) cdiDir() string                { return l.in("cdi") }
func (l layout) devDir() string                { return l.in("dev") }
func (l layout) gpuDir() string                { return l.in("gpu") }
func (l layout) libDir() string                { return l.in("lib") }
func (l layout) driverRoot() string            { return l.in("driver") }
func (l layout) kubeletRoot() string           { return l.in("kubelet") }
func (l layout) podLogs() string               { return l.in("pods") }
func (l layout) config(name ...string) string  { return l.in(append([]string{"config"}, name...)...) }

// hash differs between state directories; it tells apart what cannot live below the state
// directory.
func (l layout) hash() uint32 {
	h := fnv.New32a()
	h.Write([]byte(l.state))
	return h.Sum32()
}

func (l layout) id() string { return fmt.Sprintf("%08x", l.hash()) }

// cgroup is the parent of every container's cgroup, as a path in the cgroup hierarchy.
func (l layout) cgroup() string { return "/deviceshare-" + l.id() }

// network is the name of the CNI network.
func (l layout) network() string { return "deviceshare-" + l.id() }

// subnet is where pods have their addresses: a part of 198.18.0.0/15, which RFC 2544 keeps for
// tests.
func (l layout) subnet() string {
	return fmt.Sprintf("198.%d.%d.0/23", 18+l.part/128, l.part%128*2)
}

// serviceRange is where Services have their addresses.
func (l layout) serviceRange() netip.Prefix { return servicesOf(l.part) }

// servicesOf is a part of the addresses of Services.
func servicesOf(part int) netip.Prefix {
	first := allServices().Addr().As4()
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{first[0], first[1], byte(part), 0}), 24)
}

// makeDirs creates the directories of a fresh state.
func (l layout) makeDirs() error {
	dirs := []string{l.in("logs"), l.in("pki"), l.in("config", "cni"), l.cdiDir(), l.devDir(), l.gpuDir(), filepath.Join(l.libDir(), "standin"),
		l.kubeletRoot(), l.podLogs(), l.in("etcd"), l.in("device-plugin"), l.webhookDir(), l.in("sysctl")}
	for _, d := range dirs {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("create state directory: %w", err)
		}
	}
	return os.Chmod(l.in("pki"), 0o700)
}
