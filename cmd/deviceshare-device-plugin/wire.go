// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"deviceshare/config/live"
	"deviceshare/config/signing"
	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/cluster"
	"deviceshare/deviceplugin/containers"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/legacy"
	"deviceshare/deviceplugin/metrics"
	"deviceshare/deviceplugin/mirror"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/modes/mps"
	"deviceshare/deviceplugin/node"
	"deviceshare/deviceplugin/oversight"
	"deviceshare/deviceplugin/reporting"
	"deviceshare/deviceplugin/settings"
	"deviceshare/endpoint"
	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/podspec"
)

// plugin is every part that runs. assemble makes them in the order in which they need each other.
type plugin struct {
	o          *options
	agent      *agent.Agent
	config     *live.Watcher
	settings   settings.Configuration
	report     *reporting.Reporter
	metrics    *metrics.Metrics
	store      *checkpoint.Store
	pods       *cluster.Pods
	receipts   *legacy.ReceiptWriter
	evictor    *cluster.Evictor
	amounts    *legacy.Amounts
	publisher  *cluster.Publisher
	monitor    *agent.Monitor
	preparers  []modes.Preparer
	mover      *agent.Mover
	containers *containers.Manager
	holdings   *containers.HoldingsWatch
	slices     *cluster.Slices
	contests   *containers.ContestWatch
	releaser   *agent.Releaser
	oversight  *oversight.Oversight
	slots      *kubelet.Server
	// unserved are the modes that could not be served at the start, with why.
	unserved map[sharing.Mode]string
	access   *endpoint.Access
}

// leaveFor is how long the plugin works on after it was told to stop and has
// published that the node takes no pods, so that a pod that the scheduler was just
// binding is still admitted.
const leaveFor = 2 * time.Second

func run(ctx context.Context, o *options) error {
	client, err := cluster.NewClient(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("%w (--kubeconfig)", err)
	}
	p, err := assemblePlugin(client, driver.NewNVML(o.base.Library()), o)
	if err != nil {
		return err
	}
	defer p.report.Stop()
	klog.InfoS("starting", "node", o.nodeName, "kubeletDir", o.places.Root, "cdiDir", o.runtime.Specs, "stateDir", o.modes.StateDir, "driverEdits", o.base.Edits)
	working, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	group, working := errgroup.WithContext(working)
	group.Go(func() error {
		defer end()
		p.agent.Leave(ctx, working, p.slots, leaveFor)
		return nil
	})
	p.startParts(working, group)
	err = group.Wait()
	abandonNode(p.agent.State(), p.preparers)
	klog.InfoS("stopped")
	return err
}

// assemblePlugin makes every part; nothing runs yet.
func assemblePlugin(client kubernetes.Interface, gpus driver.Driver, o *options) (p *plugin, err error) {
	p = &plugin{o: o, receipts: legacy.NewReceiptWriter(client, o.nodeName), access: endpoint.NewAccess(client)}
	given := func(id sharing.DeviceID) bool { return p.agent.State().IsModeGiven(id) }
	if p.preparers, err = o.modes.makePreparers(gpus, o.base.Seen(), given, func(r mps.Restart) { p.report.DaemonDied(r) }); err != nil {
		return nil, err
	}
	var broken error
	if p.store, broken, err = checkpoint.Open(host.OS{}, filepath.Join(o.modes.StateDir, "checkpoint.json")); err != nil {
		return nil, fmt.Errorf("%w (--state-dir)", err)
	}
	rules, err := o.health.parseRules()
	if err != nil {
		return nil, err
	}
	p.report, p.unserved = reporting.NewReporter(client, o.nodeName), o.modes.findUnserved()
	p.agent = agent.New(node.Config{
		Node: o.nodeName, Powers: o.modes.findPowers(p.preparers, p.unserved), Health: rules, Backends: factory.New(),
		Isolation: o.modes.Isolation.Rules, ServesContested: o.modes.Contested == "tell",
	}, p.report)
	if p.pods, err = cluster.NewPods(client, o.nodeName, followers{p}); err != nil {
		return nil, err
	}
	if p.oversight, err = oversight.New(oversight.Config{
		Exempt: o.modes.Audit, OnlyTells: o.modes.Unlimited == "tell", Agent: p.agent, Records: p.store, Pods: p.pods,
		Devices: gpus, Runtime: o.runtime, Observer: p.report,
	}); err != nil {
		return nil, err
	}
	p.config = live.New(live.Options{
		Client: client, Problem: p.report.Configuration, Changed: followers{p}.applyConfiguration,
		Store: checkpoint.Configuration{Files: host.OS{}, Directory: filepath.Join(o.modes.StateDir, "config"), Trouble: p.report.ConfigNotKept},
	})
	p.settings = settings.Configuration{Watcher: p.config, Node: o.nodeName}
	states := reporting.NewStates(p.agent, p.settings, p.store, p.oversight)
	p.metrics = metrics.New(o.nodeName, states, metrics.NewSurvey(metrics.SurveyConfig{
		StateDir: o.modes.StateDir, Records: p.store, Pods: p.pods, Devices: gpus, Host: p.oversight, States: states, Trouble: p.report.UsageUnread,
	}))
	p.report.Attach(p.metrics, p.pods, p.store)
	p.report.Checkpoint(broken)
	p.evictor = cluster.NewEvictor(cluster.EvictorConfig{Client: client, Placements: followers{p}})
	return p, p.assembleNode(client, gpus)
}

// assembleNode makes the parts that work on devices, containers and the node object.
func (p *plugin) assembleNode(client kubernetes.Interface, gpus driver.Driver) error {
	o := p.o
	if err := o.base.CarryHook(host.OS{}, o.modes.LibraryDir, o.modes.StateDir); err != nil {
		return err
	}
	base, forget, err := o.base.NewBase(gpus, p.agent, p.report)
	if err != nil {
		return err
	}
	here := o.places.Root
	resources, err := kubelet.DialPodResources(here.PodResources(), p.settings)
	if err != nil {
		return err
	}
	devices := &agent.KeyedLock{}
	p.containers = p.newManager(devices, base, resources)
	p.amounts = legacy.NewAmounts(legacy.AmountsConfig{Setting: o.memoryResources, Sockets: here.DevicePlugins(), Checkpoint: here,
		Devices: p.agent, Pods: p.pods, Configuration: p.settings, Observer: followers{p}})
	changes, _ := p.agent.Changes()
	if p.publisher, err = cluster.NewPublisher(cluster.PublisherConfig{
		Client: client, Node: o.nodeName, Changes: changes, Ended: func(err error) { p.agent.SetPart(node.PartPublishing, err) },
		Source: reporting.NewNodeSource(p.agent, p.settings, p.amounts),
	}); err != nil {
		return err
	}
	p.monitor = agent.NewMonitor(gpus, p.agent, agent.MonitorConfig{
		Probe: o.healthProbe, Retry: o.driverRetry, FailFast: o.failOnInitError, Opened: forget, Last: p.publisher,
	})
	p.mover = agent.NewMover(agent.MoverConfig{
		Agent: p.agent, Preparers: p.preparers, Holders: p.containers, Devices: devices, Monitor: p.monitor, Failed: followers{p}.countFailure,
	})
	p.releaser = agent.NewReleaser(p.agent, p.containers)
	p.holdings = containers.NewHoldingsWatch(p.containers, p.agent, p.pods, resources)
	p.slices = cluster.NewSlices(client, o.nodeName)
	p.contests = containers.NewContestWatch(containers.ContestConfig{
		Kubelet: resources, Slices: p.slices, Devices: gpus, Names: func() podspec.Names { return p.settings.Terms().Names }, Agent: p.agent,
	})
	p.slots = containers.NewSlotServer(&o.places, p.settings, p.holdings)
	return nil
}

func (p *plugin) newManager(devices *agent.KeyedLock, base cdi.Base, resources *kubelet.PodResources) *containers.Manager {
	o, here := p.o, p.o.places.Root
	resolver := &kubelet.Resolver{
		Checkpoint: here, Resources: resources, Pods: p.pods, Resource: p.settings, Source: followers{p}.useRecord,
	}
	config := containers.Config{
		Node: p.agent, Devices: devices, Pods: p.pods, Resolver: resolver, Preparers: p.preparers, Store: p.store, Terms: p.settings,
		Base: base, Specs: &cdi.Directory{Files: host.OS{}, Path: o.runtime.Specs}, Kubelet: here, Resource: p.settings,
		Settle: o.settle, Reader: cdi.NewReader(o.runtime.Specs), Observer: followers{p}, Wait: o.health.Wait,
	}
	if o.modes.PlacementKeys != "" {
		config.Signatures = signing.Keys{Directory: o.modes.PlacementKeys}
	}
	m := containers.New(config)
	resolver.Memory = m
	return m
}

// startParts runs every part. Devices are looked at only after the configuration was
// read, so that nothing is offered under settings that are not the
// administrator's; the kubelet is told only after the devices are known, so that
// a restart does not take the node's capacity away.
func (p *plugin) startParts(ctx context.Context, group *errgroup.Group) {
	for _, run := range []func(context.Context) error{p.config.Run, p.receipts.Run, p.evictor.Run, p.publisher.Run, p.slices.Run} {
		group.Go(func() error { return run(ctx) })
	}
	group.Go(func() error { p.pods.Run(ctx); return nil })
	if p.o.metricsAddress != "" {
		check := func() error { return agent.CheckHealth(p.monitor, p.releaser, p.o.modes.StateDir) }
		group.Go(func() error { return p.metrics.Serve(ctx, p.o.metricsAddress, p.access, check) })
	}
	group.Go(func() error {
		klog.InfoS("waiting for the configuration and the pods of this node")
		if p.config.Wait(ctx) != nil || !p.pods.WaitForSync(ctx) {
			return nil
		}
		p.agent.Send(settings.Event(p.config.Current(), p.o.nodeName))
		p.o.modes.watchKeeper(ctx, group, p.agent)
		group.Go(func() error { return p.agent.WatchUnserved(ctx, p.unserved, p.o.modes.checkLibrary, p.o.driverRetry) })
		group.Go(func() error { return p.containers.WatchStranded(ctx, kubelet.Absence(p.o.places.Keeper)) })
		group.Go(func() error { return p.monitor.Run(ctx) })
		for _, x := range p.preparers {
			if r, ok := x.(modes.Runner); ok {
				group.Go(func() error { return r.Run(ctx) })
			}
		}
		return p.serveWhenReady(ctx, group)
	})
}

// mirrorPodResources serves exporters that ask which pod has which device.
func (p *plugin) mirrorPodResources(ctx context.Context) error {
	here := p.o.places.Root
	return mirror.Run(ctx, mirror.Config{
		Socket: here.TruePodResources(), Kubelet: here.PodResources(), Resource: p.settings, Records: p.store,
		Devices: func() []sharing.Device { return p.agent.State().Inventory().Devices },
	})
}

// serveWhenReady starts what needs to know the devices. What runs on them is recorded
// first where a record was lost.
func (p *plugin) serveWhenReady(ctx context.Context, group *errgroup.Group) error {
	if !p.agent.AwaitScan(ctx) {
		return nil
	}
	p.holdings.Begin(ctx)
	p.contests.Begin(ctx)
	group.Go(func() error { return p.mover.Run(ctx) })
	p.mover.AwaitLook(ctx)
	p.oversight.AskRuntime(ctx)
	p.publisher.Begin()
	if p.o.podResources {
		group.Go(func() error { return p.mirrorPodResources(ctx) })
	}
	for _, run := range []func(context.Context) error{p.oversight.Run, p.holdings.Run, p.contests.Run, p.amounts.Run, p.releaser.Run} {
		group.Go(func() error { return run(ctx) })
	}
	group.Go(func() error { return p.containers.Repair(ctx, p.report.Reconcile) })
	return p.slots.Run(ctx)
}
