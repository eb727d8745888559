// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Client talks to the cluster as its administrator.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// RestConfig is for further clients. It is a copy.
func (c *Cluster) RestConfig() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig is the path of the administrator's kubeconfig file.
func (c *Cluster) Kubeconfig() string { return c.layout.adminKubeconfig() }

// Dir is the state directory.
func (c *Cluster) Dir() string { return c.layout.state }

// CDIDir is where the device plugin writes CDI specs.
func (c *Cluster) CDIDir() string { return c.layout.cdiDir() }

// Cgroup is the name of the cgroup below which all pods are.
func (c *Cluster) Cgroup() string { return c.layout.cgroup() }

// Images are the names of the images that every sandbox has.
func Images() []string {
	return []string{ImagePause, ImageCUDAClient, ImageWantsAll, ImageBare, ImageHostile}
}

// Components tells which components there are and how they fare, in start order.
func (c *Cluster) Components() []ComponentStatus { return c.sup.status() }

// Kill sends SIGKILL to a component and returns when it is gone. Unless Options.NoRestart is set it
// is started again after a short delay; WaitReady waits for that.
func (c *Cluster) Kill(name string) error {
	p, err := c.part(name)
	if err != nil {
		return err
	}
	return p.kill(context.Background())
}

// Freeze keeps a component from doing anything, as a machine that is short of memory does, until
// thaw is called. Its connections stay open.
func (c *Cluster) Freeze(name string) (thaw func() error, err error) {
	p, err := c.part(name)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	return func() error { return p.signal(ctx, syscall.SIGCONT) }, p.signal(ctx, syscall.SIGSTOP)
}

// StopComponent stops a component in an orderly way and leaves it stopped.
func (c *Cluster) StopComponent(name string) error {
	p, err := c.part(name)
	if err != nil {
		return err
	}
	return p.stop(context.Background())
}

// StartComponent starts a component that was stopped; a running one is left alone.
func (c *Cluster) StartComponent(name string) error {
	p, err := c.part(name)
	if err != nil {
		return err
	}
	return p.start(context.Background())
}

// Restart stops a component in an orderly way and starts it again.
func (c *Cluster) Restart(name string) error {
	if err := c.StopComponent(name); err != nil {
		return err
	}
	return c.StartComponent(name)
}

// WaitReady waits until a component does its work, at most two minutes. The error shows the end of
// its log.
func (c *Cluster) WaitReady(ctx context.Context, name string) error {
	p, err := c.part(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	return p.waitReady(ctx)
}

// Log is the whole log of a component, over all its lives.
func (c *Cluster) Log(name string) (string, error) {
	p, err := c.part(name)
	if err != nil {
		return "", err
	}
	return p.log(context.Background())
}

// PodLog is the log of a container; it goes through the apiserver and the kubelet.
func (c *Cluster) PodLog(ctx context.Context, namespace, pod, container string) (string, error) {
	req := c.client.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container})
	stream, err := req.Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("read log of %s/%s/%s: %w", namespace, pod, container, err)
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	if err != nil {
		return "", fmt.Errorf("read log of %s/%s/%s: %w", namespace, pod, container, err)
	}
	return string(text), nil
}

// Run runs a short program among the components, where it sees their process numbers and mounts.
func (c *Cluster) Run(ctx context.Context, name string, args ...string) (string, error) {
	return c.inside.run(ctx, nil, name, args...)
}

// FakeGPU runs fakegpuctl on the fake GPUs of the real node, as in FakeGPU(ctx, "xid", "0", "79").
func (c *Cluster) FakeGPU(ctx context.Context, args ...string) (string, error) {
	return c.inside.run(ctx, c.gpuEnv(), filepath.Join(c.layout.libDir(), "fakegpuctl"),
		append([]string{"--dir", c.layout.gpuDir()}, args...)...)
}
