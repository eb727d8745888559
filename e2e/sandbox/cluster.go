// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// startTimeout bounds how long one component may take until it is ready. On a busy machine of two
// cores the slowest needs about ten seconds.
const startTimeout = 2 * time.Minute

// Cluster is a running sandbox.
type Cluster struct {
	opts      Options
	layout    layout
	freePorts portBlock
	ports     ports
	nodeIP    string
	runc      string
	lock      *lock
	claim     addressClaim
	inside    *namespaces
	sup       *supervisor
	// apiAddress is set in a cluster whose product is installed.
	apiAddress serviceAddress
	hollow     []hollowNode
	reader     reader

	config  *rest.Config
	client  kubernetes.Interface
	dynamic dynamic.Interface

	volcanoModule string
	stopNodes     context.CancelFunc
	nodesDone     chan struct{}
	stopOnce      sync.Once
	stopErr       error
}

// Start brings a cluster up from what Build made and returns when every component is ready. When it
// fails, or ctx ends before that, everything is taken down again. Only one sandbox runs per state
// directory.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	o, err := opts.Defaults()
	if err != nil {
		return nil, err
	}
	c := &Cluster{opts: o, layout: layout{repo: o.Repo, state: o.State}}
	if c.lock, err = takeLock(c.layout); err != nil {
		return nil, err
	}
	if err := prepareState(c.layout); err != nil {
		c.lock.release()
		return nil, err
	}
	if c.claim, err = claimAddresses(claimsDir, c.layout); err != nil {
		c.lock.release()
		return nil, err
	}
	c.layout.part = c.claim.part
	if c.inside, err = makeNamespaces(ctx, c.layout, o.Installed); err != nil {
		c.lock.release()
		return nil, errors.Join(err, c.claim.release())
	}
	c.sup = newSupervisor(c.inside.thread, c.layout.statusFile(), !o.NoRestart)
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// start does the steps of Start that Stop can undo.
func (c *Cluster) start(ctx context.Context) error {
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"making certificates and configuration", c.prepare},
		{"starting etcd, apiserver and containerd", c.startBase},
		{"installing Volcano's resource definitions", c.installCRDs},
		{"giving the product its accounts", c.installAccounts},
		{"starting controllers, kubelet and scheduler", c.startControllers},
		{"starting deviceshare", c.startProduct},
		{"creating simulated nodes", c.startNodes},
	}
	for _, s := range steps {
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
		c.opts.Progress(s.what)
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	c.opts.Progress("ready")
	return nil
}

// prepare writes everything that the components read.
func (c *Cluster) prepare(ctx context.Context) error {
	l := c.layout
	var err error
	c.freePorts = portsOf(l.part)
	if c.ports, err = choosePorts(&c.freePorts); err != nil {
		return err
	}
	if !c.opts.NoKubelet {
		if err := c.prepareNode(ctx); err != nil {
			return err
		}
	}
	if c.opts.Installed {
		c.apiAddress, c.ports.API = newServiceAddress(l.part), apiPort
		if err := c.apiAddress.add(); err != nil {
			return err
		}
	}
	server := "https://" + net.JoinHostPort(c.apiHost(), strconv.Itoa(c.ports.API))
	if err := makePKI(l, server, c.nodeIP, c.opts); err != nil {
		return err
	}
	v := newConfigValues(l, c.ports, c.nodeIP, c.runc)
	v.QuickRestarts = c.opts.kubeletRestartsQuickly()
	if !c.opts.NoKubelet {
		if err := c.inside.do(func() error { return tryOverlay(l) }); err != nil {
			v.Snapshotter = "native"
		}
	}
	if c.opts.TopologyPolicy != "" {
		v.TopologyPolicy, v.SystemCPUs = c.opts.TopologyPolicy, systemCPUs()
		if v.Runc, err = c.showNUMA(); err != nil {
			return err
		}
	}
	if c.opts.Installed {
		v.BaseSpec, v.NVIDIA = l.config(baseSpecFile), l.config(nvidiaRuntime)
		if err := c.writeNVIDIARuntime(v.Runc); err != nil {
			return err
		}
		if err := c.writeBaseSpec(ctx); err != nil {
			return err
		}
	}
	if err := writeConfig(l, v, c.opts); err != nil {
		return err
	}
	if err := c.prepareHollow(v); err != nil {
		return err
	}
	return c.makeClients()
}

// prepareNode readies this machine for a kubelet.
func (c *Cluster) prepareNode(ctx context.Context) error {
	var err error
	if c.nodeIP, err = nodeAddress(); err != nil {
		return err
	}
	if c.runc, err = findRunc(ctx, c.opts); err != nil {
		return err
	}
	if err := checkState(c.layout); err != nil {
		return err
	}
	if err := makeCgroup(c.layout); err != nil {
		return err
	}
	if c.opts.Installed {
		if err := makeDriverRoot(c.layout, c.opts.Topology); err != nil {
			return err
		}
	}
	return c.installGPUs()
}

// apiHost is where the API server listens. Pods of an installation reach it at the address of its
// Service.
func (c *Cluster) apiHost() string {
	if c.opts.Installed {
		return c.apiAddress.address.String()
	}
	return "127.0.0.1"
}

func (c *Cluster) makeClients() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.layout.adminKubeconfig())
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	// Tests create and watch many pods at once; the default of 5 requests a second would be the
	// slowest part.
	config.QPS, config.Burst = 1000, 2000
	c.config = config
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	return nil
}

// startBase starts what everything else needs and loads the images.
func (c *Cluster) startBase(ctx context.Context) error {
	if err := c.sup.add(c.apiServer()); err != nil {
		return err
	}
	if !c.opts.NoKubelet {
		if err := c.sup.add(c.containerd()); err != nil {
			return err
		}
		if err := c.WaitReady(ctx, Containerd); err != nil {
			return err
		}
		if err := c.importImages(ctx); err != nil {
			return err
		}
	}
	// Looked up while the apiserver starts: asking go takes a second.
	var err error
	if c.volcanoModule, err = volcanoModule(ctx, c.layout.repo); err != nil {
		return err
	}
	return c.WaitReady(ctx, APIServer)
}

// startControllers starts whatever needs the apiserver and waits for all of it.
func (c *Cluster) startControllers(ctx context.Context) error {
	all := []component{c.controllerManager(), c.volcanoControllers()}
	if c.opts.Installed {
		all = append(all, c.defaultScheduler())
	} else {
		all = append(all, c.scheduler())
	}
	if !c.opts.NoKubelet {
		all = append(all, c.kubelet())
	}
	for _, n := range c.hollow {
		all = append(all, n.kubelet(c))
	}
	if err := c.startAll(ctx, all); err != nil {
		return err
	}
	if err := c.waitServiceAccount(ctx); err != nil {
		return err
	}
	if c.opts.Installed && c.opts.StockScheduler {
		return c.installVolcanoScheduler(ctx)
	}
	return nil
}

// startProduct starts the device plugin and the webhook, as far as they are built.
func (c *Cluster) startProduct(ctx context.Context) error {
	for _, n := range c.hollow {
		c.sup.register(n.devicePlugin(c))
	}
	if c.opts.Installed {
		return c.install(ctx)
	}
	var all []component
	if c.opts.hasDevicePlugin() {
		all = append(all, c.devicePlugin())
	}
	if !c.opts.NoWebhook {
		all = append(all, c.webhook())
	}
	var there []component
	for _, p := range all {
		if !exists(p.path) {
			c.opts.Progress("  without the " + p.name + ": " + filepath.Base(p.path) + " is not built")
			continue
		}
		if p.name == Webhook {
			if err := c.registerWebhook(ctx); err != nil {
				return err
			}
		}
		there = append(there, p)
	}
	return c.startAll(ctx, there)
}

// startAll starts components together and then waits for each.
func (c *Cluster) startAll(ctx context.Context, all []component) error {
	for _, p := range all {
		if err := c.sup.add(p); err != nil {
			return err
		}
	}
	for _, p := range all {
		if err := c.WaitReady(ctx, p.name); err != nil {
			return err
		}
	}
	return nil
}

// Stop takes the cluster down: every process, container, mount and cgroup. Log files stay. It may
// be called again.
func (c *Cluster) Stop() error {
	c.stopOnce.Do(func() {
		if c.stopNodes != nil {
			c.stopNodes()
			<-c.nodesDone
		}
		c.sup.stop(c.hollowParts()...)
		c.sup.stop(Scheduler, Webhook, DevicePlugin, VolcanoController, DefaultScheduler, ControllerManager, Kubelet)
		c.sup.stop(Containerd, APIServer)
		c.inside.end()
		c.sup.settle()
		c.stopErr = errors.Join(clean(c.layout), c.claim.release())
		c.lock.release()
	})
	return c.stopErr
}
