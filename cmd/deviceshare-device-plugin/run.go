// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"deviceshare/config/live"
	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/cluster"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/legacy"
	"deviceshare/deviceplugin/lifecycle"
	"deviceshare/deviceplugin/metrics"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
	"deviceshare/sharing/factory/nodefactory"
	"deviceshare/sharing/nodeapi"
	"deviceshare/sharing/nodeapi/hostnode"
)

// plugin is everything that runs, wired together.
type plugin struct {
	o         *options
	client    kubernetes.Interface
	driver    driver.Driver
	agent     *agent.Agent
	metrics   *metrics.Metrics
	report    *reporter
	config    *live.Watcher
	pods      *cluster.Pods
	store     *checkpoint.Store
	keeper    *lifecycle.Keeper
	releases  *agent.Releaser
	receipts  *legacy.ReceiptWriter
	preparers []nodeapi.Preparer
	kubelet   kubelet.Directory
	monitor   *agent.Monitor
	locks     agent.KeyedLock // one per device
	mover     *agent.Mover
	evictor   *cluster.Evictor
	forget    func() // what was learned about the driver's files
	// changes holds a token when what is published may have changed.
	changes chan struct{}
}

// changed makes the publisher look again; it does not block.
func (p *plugin) changed() {
	select {
	case p.changes <- struct{}{}:
	default:
	}
}

// run works until ctx ends.
func run(ctx context.Context, o *options) error {
	restConfig, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("find the API server (--kubeconfig): %w", err)
	}
	// Bursts happen when many pods start at once; the watch carries the rest.
	restConfig.QPS, restConfig.Burst = 50, 100
	client, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("make a client for the API server: %w", err)
	}
	p, err := assemble(client, driver.NewNVML(o.nvmlLibrary), o)
	if err != nil {
		return err
	}
	defer p.report.stop()
	klog.InfoS("starting", "node", o.nodeName, "kubeletDir", o.kubeletDir, "cdiDir", o.cdiDir, "stateDir", o.stateDir, "driverEdits", o.driverEdits)
	working, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	group, working := errgroup.WithContext(working)
	group.Go(func() error { defer end(); p.leave(ctx, working); return nil })
	p.start(working, group)
	err = group.Wait()
	klog.InfoS("stopped")
	return err
}

// powers is what this node can do.
func (p *plugin) powers() node.Powers {
	powers := node.Powers{Switches: true}
	for _, x := range p.preparers {
		powers.Serves = append(powers.Serves, x.Mode())
	}
	for _, x := range p.switchers() {
		powers.Switched = append(powers.Switched, x.Mode())
	}
	return powers
}

// countable is the devices as the kubelet counts them. A device on the way into
// another mode keeps its slots: a pod that comes for the old one is told so when it
// starts, and placed anew.
func (p *plugin) countable() sharing.Inventory {
	return p.agent.State().View(func(may node.Permissions) bool { return may.Count })
}

// assemble makes every part; nothing runs yet.
func assemble(client kubernetes.Interface, driver driver.Driver, o *options) (*plugin, error) {
	p := &plugin{
		o: o, client: client, driver: driver, receipts: legacy.NewReceiptWriter(client, o.nodeName), changes: make(chan struct{}, 1),
	}
	slicer, step, err := timeSlice(o)
	if err != nil {
		return nil, err
	}
	p.preparers = nodefactory.New(nodefactory.Config{
		Files: hostnode.OS{}, StateDir: o.stateDir, LibraryDir: o.libraryDir, MIG: driver, MPS: mps(o, driver, p.daemonDied),
		Given:     func(id sharing.DeviceID) bool { return p.agent.State().IsModeGiven(id) },
		Note:      func(id sharing.DeviceID, what string) { klog.InfoS("hardware changed", "device", id, "what", what) },
		TimeSlice: slicer, TimeSliceStep: step,
	})
	var broken error
	p.store, broken, err = checkpoint.Open(hostnode.OS{}, filepath.Join(o.stateDir, "checkpoint.json"))
	if err != nil {
		return nil, fmt.Errorf("%w (--state-dir)", err)
	}
	survey, err := p.survey()
	if err != nil {
		return nil, err
	}
	p.metrics = metrics.New(p, survey)
	p.report = newReporter(client, o.nodeName, p.metrics)
	if err := p.assembleAgent(); err != nil {
		return nil, err
	}
	if broken != nil {
		p.report.trouble(metrics.ProblemCheckpoint, "DeviceCheckpointBroken", broken)
	}
	last := checkpoint.Configuration{Files: hostnode.OS{}, Directory: filepath.Join(o.stateDir, "config"), Trouble: func(err error) {
		p.report.trouble(metrics.ProblemConfiguration, "DeviceConfigNotKept", err)
	}}
	p.config = live.New(live.Options{
		Client: client, Store: last,
		Changed: func(v live.Value) {
			klog.InfoS("configuration changed", "device", v.DeviceFrom, "node", v.NodeFrom)
			p.agent.Send(agent.SettingsEvent(v, o.nodeName))
			p.changed() // resource names and units are not part of the inventory
		},
		Problem: p.report.configuration,
	})
	if p.pods, err = cluster.NewPods(client, o.nodeName, p); err != nil {
		return nil, err
	}
	p.report.pods = p.pods
	p.kubelet = kubelet.Directory(o.kubeletDir)
	base, forget, err := newBase(o, p.driver, p.agent)
	if err != nil {
		return nil, err
	}
	p.forget = forget
	p.monitor = agent.NewMonitor(p.driver, p.agent, agent.MonitorConfig{
		Probe: o.healthProbe, Retry: o.driverRetry, FailFast: o.failOnInitError,
		Opened: p.forget,
	})
	p.assembleModes()
	return p, p.assembleKeeper(base)
}

// assembleKeeper makes the part that carries allocations.
func (p *plugin) assembleKeeper(base cdi.Base) error {
	o := p.o
	resources, err := kubelet.DialPodResources(p.kubelet.PodResources(), countOffer{p})
	if err != nil {
		return err
	}
	resolver := &kubelet.Resolver{
		Checkpoint: p.kubelet, Resources: resources, Pods: p.pods, Resource: countOffer{p}, Source: p.report.source,
	}
	p.keeper = lifecycle.New(lifecycle.Config{
		Pods: p.pods, Resolver: resolver,
		Preparers: p.preparers,
		Store:     p.store, Base: base, Specs: &cdi.Directory{Files: hostnode.OS{}, Path: o.cdiDir},
		Node: p.agent, Devices: &p.locks,
		Terms: func() lifecycle.Terms {
			v := p.config.Current()
			return terms(v.Device, v.Node.For(o.nodeName))
		},
		Held: p.allocations, Settle: o.settle,
		Observe: lifecycle.Observer{
			Allocated: p.metrics.Allocated,
			Prepared: func(pod *corev1.Pod, c nodeapi.Claim, took time.Duration) {
				p.receipts.Prepared(pod)
				p.metrics.Prepared(c.Devices[0].Share.Mode, took)
			},
			Failed: p.refused,
			Released: func(_ sharing.Owner, err error) {
				p.metrics.Released(err)
				p.mover.Released()
			},
		},
	})
	resolver.Memory = p.keeper
	p.releases = agent.NewReleaser(p.agent, p.keeper)
	return nil
}

// countName is the name of the only resource of the device plugin protocol.
func (p *plugin) countName() string { return p.config.Current().Device.CountName }

// start runs every part. Devices are looked at only after the configuration was
// read, so that nothing is published under settings that are not the
// administrator's; the kubelet is told only after the devices are known, so that
// a restart does not take the node's capacity away.
func (p *plugin) start(ctx context.Context, group *errgroup.Group) {
	group.Go(func() error { return p.config.Run(ctx) })
	group.Go(func() error { p.pods.Run(ctx); return nil })
	group.Go(func() error { return p.receipts.Run(ctx) })
	group.Go(func() error { return p.evictor.Run(ctx) })
	if p.o.metricsAddress != "" {
		group.Go(func() error {
			return p.metrics.Serve(ctx, p.o.metricsAddress, agent.Health{Monitor: p.monitor, Releaser: p.releases, StateDir: p.o.stateDir}.Check)
		})
	}
	group.Go(func() error {
		klog.InfoS("waiting for the configuration and the pods of this node")
		if p.config.Wait(ctx) != nil || !p.pods.WaitForSync(ctx) {
			return nil
		}
		p.agent.Send(agent.SettingsEvent(p.config.Current(), p.o.nodeName))
		group.Go(func() error { return p.monitor.Run(ctx) })
		p.supervise(ctx, group)
		return p.serveWhenReady(ctx, group)
	})
}

// assembleAgent makes the keeper of the node's state.
func (p *plugin) assembleAgent() error {
	xids, all, err := p.o.xids()
	if err != nil {
		return err
	}
	p.agent = agent.New(node.Config{
		Node: p.o.nodeName, Powers: p.powers(),
		Health: node.HealthRules{Ignored: xids, IgnoreAll: all, Quiet: node.Moment(p.o.healthMin)},
	}, p.report)
	p.report.agent = p.agent
	return nil
}

// PodGone implements cluster.PodObserver.
func (p *plugin) PodGone(owner sharing.Owner) {
	p.evictor.Forget(types.UID(owner))
	p.releases.Gone(owner)
}

// published is what the node object is kept equal to.
type published struct {
	plugin  *plugin
	amounts *legacy.Amounts
}

// NodeState implements cluster.NodeSource.
func (n published) NodeState() (cluster.NodeState, bool) {
	p := n.plugin
	state := p.agent.State()
	device := p.config.Current().Device
	return cluster.NodeState{
		Inventory: state.Published(), Config: p.versions(), Names: device.Names(), Factor: device.MemoryFactor,
		AmountsInStatus: n.amounts.Source() == legacy.FromNodeStatus,
	}, state.Scanned()
}

// publisher keeps the node object current.
func (p *plugin) publisher(source cluster.NodeSource) (*cluster.Publisher, error) {
	return cluster.NewPublisher(cluster.PublisherConfig{
		Client: p.client, Node: p.o.nodeName, Source: source, Changes: p.changes,
		Trouble: func(err error) { p.report.part(node.PartPublishing, err) },
	})
}
