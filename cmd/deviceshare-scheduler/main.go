// SPDX-License-Identifier: Apache-2.0

// Command deviceshare-scheduler is the Volcano scheduler with this repository's deviceshare
// plugin instead of the one that ships with Volcano. It takes Volcano's flags and
// configuration file, and a few flags of its own that begin with --deviceshare-.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	cliflag "k8s.io/component-base/cli/flag"
	componentbaseoptions "k8s.io/component-base/config/options"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	_ "volcano.sh/volcano/pkg/scheduler/actions"
	_ "volcano.sh/volcano/pkg/scheduler/plugins"
	_ "volcano.sh/volcano/pkg/scheduler/util/assert"
	commonutil "volcano.sh/volcano/pkg/util"

	"deviceshare/config/signing"
	"deviceshare/endpoint"
	"deviceshare/plugins/deviceshare"
	"deviceshare/plugins/deviceshare/demand"
	"deviceshare/plugins/deviceshare/page"
	"deviceshare/plugins/leader"
	"deviceshare/plugins/liveness"
	"deviceshare/plugins/nodeorder"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/wire"
)

// version is what --version answers; a release sets it by the linker.
var version = "unreleased"

func main() {
	volcano, ours := parseFlags(pflag.CommandLine)
	if volcano.PrintVersion {
		fmt.Println("deviceshare-scheduler version", version, "on Volcano", volcanoVersion())
		return
	}
	if err := run(volcano, ours); err != nil {
		klog.Flush()
		fmt.Fprintf(os.Stderr, "deviceshare-scheduler: %v\n", err)
		os.Exit(1)
	}
}

// volcanoVersion is that of the module which this program was built of.
func volcanoVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "volcano.sh/volcano" {
				return m.Version
			}
		}
	}
	return "of an unknown version"
}

// ownOptions are the flags that Volcano does not have.
type ownOptions struct {
	debugAddress string
	signingKey   string
	logFlush     time.Duration
	sessionLimit time.Duration
	configMap    string
	deployment   string
	drains       bool
	nodes        demand.Options
}

func parseFlags(set *pflag.FlagSet) (*options.ServerOption, ownOptions) {
	klog.InitFlags(nil)
	var ours ownOptions
	set.DurationVar(&ours.logFlush, "log-flush-frequency", 5*time.Second, "Maximum number of seconds between log flushes")
	set.StringVar(&ours.debugAddress, "deviceshare-debug-address", "",
		"Address, such as 127.0.0.1:11252, at which to serve who holds which devices as JSON, over HTTPS and to ClusterRole "+endpoint.ReaderRole+", under "+page.Path+"; it is served at --listen-address too if --enable-metrics is given")

	set.StringVar(&ours.signingKey, "deviceshare-signing-key", "",
		"File with the Ed25519 key (PEM of PKCS #8) with which placements are signed; empty signs none. It is read anew for each pod")

	set.DurationVar(&ours.sessionLimit, "deviceshare-session-limit", liveness.DefaultLimit,
		"Time after which the health check fails if no action of a session has begun or ended; 0 never")

	set.StringVar(&ours.configMap, "deviceshare-scheduler-config-map", "",
		"ConfigMap that --scheduler-conf is of, as namespace/name. It gets an event for each mistake")

	set.StringVar(&ours.deployment, "deviceshare-deployment", "",
		"Deployment that this process is of, as namespace/name. While another scheduler takes the same pods, it gets an event and this process places none; empty does not look for one")

	set.BoolVar(&ours.drains, "deviceshare-evict-for-driver-upgrades", false,
		"Evict pods with devices from nodes whose driver NVIDIA's GPU operator replaces, as PodDisruptionBudgets allow")

	set.StringVar(&ours.nodes.Namespace, "deviceshare-ask-for-nodes-in", "",
		"Namespace in which to ask autoscalers for nodes, by pods that nobody places; it has the ConfigMap "+demand.ConfigMap+". Empty asks for none")

	set.StringVar(&ours.nodes.TypeLabel, "deviceshare-node-type-label", corev1.LabelInstanceTypeStable,
		"Label of nodes whose value is their type: nodes with the same value are alike")

	set.DurationVar(&ours.nodes.Patience, "deviceshare-evict-after", 10*time.Minute,
		"How long nobody is evicted for a pod that a new node would serve, where nodes are asked for")

	volcano := options.NewServerOption()
	volcano.AddFlags(set)
	utilfeature.DefaultMutableFeatureGate.AddFlag(set)
	commonutil.LeaderElectionDefault(&volcano.LeaderElection)
	volcano.LeaderElection.ResourceName = commonutil.GenerateComponentName(volcano.SchedulerNames)
	componentbaseoptions.BindLeaderElectionFlags(&volcano.LeaderElection, set)
	volcano.RegisterOptions()
	cliflag.InitFlags()
	return volcano, ours
}

func run(volcano *options.ServerOption, ours ownOptions) error {
	if err := volcano.CheckOptionOrDie(); err != nil {
		return fmt.Errorf("check the command line: %w", err)
	}
	if volcano.CaCertFile != "" && volcano.CertFile != "" && volcano.KeyFile != "" {
		if err := volcano.ParseCAFiles(nil); err != nil {
			return fmt.Errorf("read the certificates: %w", err)
		}
	}
	klog.StartFlushDaemon(ours.logFlush)
	defer klog.Flush()
	boundMemory(context.Background(), memlimit.FromCgroup)

	cluster, err := newClient(volcano)
	if err != nil {
		return err
	}
	said := newEventReporter(cluster, volcano.SchedulerNames)
	settings := &configFeed{client: cluster, report: said}
	sessions := liveness.NewPulse(clock.RealClock{}, ours.sessionLimit)
	o := deviceshare.Options{Backends: factory.New(), Report: said, Config: settings, Pulse: sessions, DriverUpgrades: ours.drains, Nodes: ours.nodes}
	term := leader.NewTerm(clock.RealClock{})
	if volcano.LeaderElection.LeaderElect {
		o.Lead = term
	}
	if ours.signingKey != "" {
		signer := signing.Signer{Path: ours.signingKey}
		if err := signer.Check(); err != nil {
			return fmt.Errorf("%w (--deviceshare-signing-key)", err)
		}
		o.Signer = signer
	}
	store := deviceshare.NewStore(o)
	settings.follows = store

	// The percentage has no meaningful sum. Volcano's accounting would wait for a
	// node that offers it.
	deviceshare.IgnoreSums(wire.ResourcePercentage)
	deviceshare.Register(store.Build)
	nodeorder.Register()
	store.WrapActions()
	guard, err := guardConfiguration(volcano, ours.configMap, said)
	if err != nil {
		return err
	}
	defer func() { _ = guard.Close() }()
	deviceshare.RegisterBinder(store.Binder())
	prometheus.MustRegister(store)
	if err := serveMetricsAndLedger(volcano, ours, store, endpoint.NewAccess(cluster)); err != nil {
		return err
	}
	if err := serveHealth(volcano, sessions); err != nil {
		return err
	}
	if err := runScheduler(volcano, ours.deployment, cluster, said, term); err != nil {
		return fmt.Errorf("run the scheduler: %w", err)
	}
	return nil
}
