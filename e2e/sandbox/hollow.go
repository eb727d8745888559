// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// HollowNode is a node with a real kubelet, GPUs and a device plugin, and with Kubernetes' fake
// container runtime: containers are reported running until they are deleted, and nobody runs them.
// All that happens before a container starts is real: registration of device plugins, admission,
// allocation, the kubelet's checkpoint, preparation.
//
// It has the taint nvidia.com/gpu:NoSchedule, so that pods which have to be run keep off.
//
// Its device plugin is a process, started by StartHollowPlugin and stopped by its name as a
// component. A pod of the chart's DaemonSet on such a node does nothing but stand for it.
type HollowNode struct {
	Name string
	// Topology is the text of its fake GPUs (see e2e/fakegpu).
	Topology string
}

// HollowTaint is the key of the taint that hollow nodes have.
const HollowTaint = "nvidia.com/gpu"

// HollowKubelet and HollowDevicePlugin are the components of a hollow node. The latter does not run
// at first.
func HollowKubelet(node string) string      { return Kubelet + "-" + node }
func HollowDevicePlugin(node string) string { return DevicePlugin + "-" + node }

// KubeletDir is a node's /var/lib/kubelet as this machine sees it.
func (c *Cluster) KubeletDir(node string) string {
	for _, n := range c.hollow {
		if n.Name == node {
			return n.layout.kubeletRoot()
		}
	}
	return c.layout.kubeletRoot()
}

// hollowNode is a hollow node of a cluster. Its layout is that of a sandbox of its own.
type hollowNode struct {
	HollowNode
	layout layout
	port   int // of its kubelet
}

// prepareHollow makes directories, GPUs and the kubelet's configuration of each hollow node.
func (c *Cluster) prepareHollow(v configValues) error {
	for _, spec := range c.opts.Hollow {
		// Sockets lie below: the path is kept short.
		n := hollowNode{HollowNode: spec, layout: layout{repo: c.layout.repo, state: c.layout.in("h", spec.Name), part: c.layout.part}}
		if err := n.layout.makeDirs(); err != nil {
			return err
		}
		if err := n.plug(); err != nil {
			return fmt.Errorf("prepare node %s: %w", n.Name, err)
		}
		if err := n.configure(c, v); err != nil {
			return fmt.Errorf("prepare node %s: %w", n.Name, err)
		}
		c.hollow = append(c.hollow, n)
	}
	return nil
}

// plug makes the topology and the device files. The fake driver asks nothing of a device file but
// that it is one.
func (n *hollowNode) plug() error {
	if err := os.WriteFile(filepath.Join(n.layout.gpuDir(), "topology"), []byte(n.Topology), 0o644); err != nil {
		return fmt.Errorf("write topology: %w", err)
	}
	names := []string{"nvidiactl"}
	for i := range countGPUs(n.Topology) {
		names = append(names, fmt.Sprintf("nvidia%d", i))
	}
	for _, name := range names {
		path := filepath.Join(n.layout.devDir(), name)
		if err := os.Symlink("/dev/null", path); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make device file: %w", err)
		}
	}
	return nil
}

// configure writes the kubelet's configuration.
func (n *hollowNode) configure(c *Cluster, v configValues) (err error) {
	if n.port, err = c.freePorts.take(); err != nil {
		return err
	}
	v.NodeName, v.Ports.Kubelet, v.PodLogs = n.Name, n.port, n.layout.podLogs()
	v.KubeletCert, v.KubeletKey = c.layout.cert(HollowKubelet(n.Name)), c.layout.key(HollowKubelet(n.Name))
	v.ContainerdSocket = n.layout.in("cri.sock")
	text, err := render("hollow-kubelet.yaml", v)
	if err != nil {
		return err
	}
	return os.WriteFile(n.layout.config("kubelet.yaml"), []byte(text), 0o644)
}

// define makes a component of the node: a program in a mount namespace of its own, in which
// /var/lib/kubelet is the node's.
func (n *hollowNode) define(c *Cluster, name, program string, args ...string) component {
	shell := []string{"--mount", "sh", "-c", `mount --bind "$0" ` + kubeletDir + ` && exec "$@"`, n.layout.kubeletRoot(), program}
	return component{name: name, path: "unshare", args: append(shell, args...), log: c.layout.log(name)}
}

func (n *hollowNode) kubelet(c *Cluster) component {
	name := HollowKubelet(n.Name)
	out := n.define(c, name, c.opts.controlPlane(c.layout), "hollow-kubelet", n.layout.in("cri.sock"), "--",
		"--config="+n.layout.config("kubelet.yaml"), "--kubeconfig="+c.layout.kubeconfig(name), "--root-dir="+kubeletDir,
		"--hostname-override="+n.Name, "--node-ip="+c.nodeIP, "--v=2")
	out.ready = func(ctx context.Context) error {
		node, err := c.client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == HollowTaint })
		return nodeReady(node)
	}
	return out
}

// devicePlugin runs the production binary, which finds this node's GPUs.
func (n *hollowNode) devicePlugin(c *Cluster) component {
	name, libs := HollowDevicePlugin(n.Name), c.layout.libDir()
	args := append([]string{"--node-name=" + n.Name, "--kubeconfig=" + n.layout.adminKubeconfig(),
		"--cdi-dir=" + n.layout.cdiDir(), "--state-dir=" + n.layout.in("device-plugin"), "--library-dir=" + libs,
		"--driver-edits=files", "--dev-root=" + n.layout.devDir(), "--driver-file=" + filepath.Join(libs, "libcuda.so.1") + ":/usr/lib/libcuda.so.1",
		"--mps-root=" + n.layout.in("mps"), "--metrics-address=127.0.0.1:0", "--runtime-sockets="}, c.opts.Args[DevicePlugin]...)
	out := n.define(c, name, productBinary(c.opts, c.layout, DevicePlugin), args...)
	out.env = []string{"FAKEGPU_DIR=" + n.layout.gpuDir(), "FAKEGPU_DEV=" + n.layout.devDir(), "LD_LIBRARY_PATH=" + libs}
	out.ready = func(ctx context.Context) error {
		node, err := c.client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if slots := node.Status.Allocatable[vgpuNumber]; slots.IsZero() {
			return fmt.Errorf("node %s offers no %s", n.Name, vgpuNumber)
		}
		return nil
	}
	return out
}

// StartHollowPlugin starts the device plugin of a hollow node where the DaemonSet has a pod for it.
// It gets that pod's token, as from a kubelet.
func (c *Cluster) StartHollowPlugin(ctx context.Context, node string) error {
	pods, err := c.client.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=deviceshare-" + DevicePlugin, FieldSelector: "spec.nodeName=" + node})
	if err == nil && len(pods.Items) != 1 {
		err = fmt.Errorf("the DaemonSet has %d pods there", len(pods.Items))
	}
	if err != nil {
		return fmt.Errorf("start the device plugin of node %s: %w", node, err)
	}
	p := &pods.Items[0]
	token, err := c.client.CoreV1().ServiceAccounts(Namespace).CreateToken(ctx, p.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID}}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("start the device plugin of node %s: %w", node, err)
	}
	config, err := clientcmd.LoadFromFile(c.layout.adminKubeconfig())
	if err != nil {
		return fmt.Errorf("start the device plugin of node %s: %w", node, err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	for _, n := range c.hollow {
		if n.Name != node {
			continue
		}
		if err := clientcmd.WriteToFile(*config, n.layout.adminKubeconfig()); err != nil {
			return fmt.Errorf("start the device plugin of node %s: %w", node, err)
		}
	}
	return c.StartComponent(HollowDevicePlugin(node))
}

// hollowParts are the components of hollow nodes.
func (c *Cluster) hollowParts() []string {
	var out []string
	for _, n := range c.hollow {
		out = append(out, HollowDevicePlugin(n.Name), HollowKubelet(n.Name))
	}
	return out
}
