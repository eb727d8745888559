// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/pprof/profile"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"deviceshare/e2e/sandbox"
)

// Options say what is measured.
type Options struct {
	Nodes     []int
	Workloads []Workload
	// Turns is how many turns each kind has, for each workload.
	Turns int
	// Out is the folder for the profiles.
	Out string
	// SchedulerArgs are flags of the scheduler after the shipped ones.
	SchedulerArgs []string
	// Progress gets a line for each step.
	Progress func(string)
}

// warmUp is how many pods of each kind are placed before anything is measured, so that caches are
// filled and the policy has learned of both.
const warmUp = 60

// Run measures every size, one after the other, and returns the rows that it has, also with an
// error.
func Run(ctx context.Context, o Options) ([]Row, error) {
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder for profiles: %w", err)
	}
	options := sandboxOptions(o)
	if err := sandbox.Build(ctx, options); err != nil {
		return nil, fmt.Errorf("build the sandbox: %w", err)
	}
	var rows []Row
	for _, nodes := range o.Nodes {
		some, err := size(ctx, o, options, nodes)
		rows = append(rows, some...)
		if err != nil {
			return rows, fmt.Errorf("measure %d nodes: %w", nodes, err)
		}
	}
	return rows, nil
}

// sandboxOptions are a control plane without a kubelet, with the product's scheduler as its chart
// configures it: the sandbox has it place more often than once a second only for the tests' sake.
func sandboxOptions(o Options) sandbox.Options {
	return sandbox.Options{
		NoKubelet: true, NoGPU: true, SchedulePeriod: time.Second, NoRestart: true, Progress: o.Progress,
		Args: map[string][]string{
			sandbox.ControllerManager: withoutLeases(),
			sandbox.Scheduler:         append([]string{"--enable-pprof"}, o.SchedulerArgs...),
		},
	}
}

// size measures one size of cluster.
func size(ctx context.Context, o Options, options sandbox.Options, nodes int) (rows []Row, err error) {
	err = withCluster(ctx, o, options, nodes, func(ctx context.Context, c *cluster) error {
		for _, w := range o.Workloads {
			row, err := c.measure(ctx, o, w, nodes)
			if err != nil {
				return err
			}
			rows = append(rows, row)
			o.Progress("  " + row.String())
		}
		return nil
	})
	return rows, err
}

// withCluster does something with a cluster of so many nodes, and stops it.
func withCluster(ctx context.Context, o Options, options sandbox.Options, nodes int, do func(context.Context, *cluster) error) (err error) {
	started, err := sandbox.Start(ctx, options)
	if err != nil {
		return fmt.Errorf("start the sandbox: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		err = errors.Join(err, started.Stop())
	}()
	c, err := prepare(ctx, started, o, nodes)
	if err != nil {
		return err
	}
	return do(ctx, c)
}

// prepare fills a cluster with nodes and places the first pods.
func prepare(ctx context.Context, started *sandbox.Cluster, o Options, nodes int) (*cluster, error) {
	config := light(started.RestConfig())
	pods, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	objects, err := dynamic.NewForConfig(started.RestConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	o.Progress(fmt.Sprintf("creating %d nodes with %d devices each", nodes, devicesPerNode))
	if err := createNodes(ctx, pods, nodes); err != nil {
		return nil, err
	}
	c := &cluster{Cluster: started, clients: clients{pods: pods, objects: objects}, say: o.Progress}
	if c.kubelets, err = runKubelets(ctx, pods); err != nil {
		return nil, err
	}
	if c.profiler, err = newProfiler(ctx, started); err != nil {
		return nil, err
	}
	o.Progress("placing the first pods")
	for _, k := range []kind{withDevices, cpuOnly} {
		if _, err := c.run(ctx, Workload{Name: Bare, Pods: warmUp}, k); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// light speaks Kubernetes' binary format, which costs both sides less than JSON.
func light(config *rest.Config) *rest.Config {
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = config.ContentType + ",application/json"
	return config
}

// measure has both kinds of a workload take turns.
func (c *cluster) measure(ctx context.Context, o Options, w Workload, nodes int) (Row, error) {
	pid, err := c.schedulerPID()
	if err != nil {
		return Row{}, err
	}
	if err := forgetPeak(pid); err != nil {
		return Row{}, err
	}
	turns := map[kind][]turn{}
	profiles := map[kind][]*profile.Profile{}
	for i := range o.Turns {
		for _, k := range order(i) {
			t, err := c.run(ctx, w, k)
			if err != nil {
				return Row{}, err
			}
			o.Progress(fmt.Sprintf("  %d nodes, %d %s, %s, turn %d of %d: %.1f pods/s; %.1f s, of which %.1f to create; CPU: scheduler %.1f s, load %.1f s, rest %.1f s",
				nodes, w.Pods, w.Name, k, i+1, o.Turns, float64(w.Pods)/t.took.Seconds(), t.took.Seconds(), t.created.Seconds(),
				t.scheduler.Seconds(), t.load.Seconds(), t.rest.Seconds()))
			turns[k], profiles[k] = append(turns[k], t), append(profiles[k], t.profiles...)
		}
	}
	row := rowOf(nodes, w, turns[withDevices], turns[cpuOnly])
	if row.PeakMiB, err = peakMiB(pid); err != nil {
		return row, err
	}
	for k, figures := range map[kind]*Figures{withDevices: &row.Device, cpuOnly: &row.CPUOnly} {
		merged, err := keep(filepath.Join(o.Out, profileName(nodes, w, k)), profiles[k])
		if err != nil {
			return row, err
		}
		figures.Hottest = hottest(merged, 3)
	}
	return row, nil
}

// order is in which order the kinds take their turns of a pair: every second time the other way
// round. What is left of earlier turns makes later ones slower, which must not count against one
// kind.
func order(pair int) [2]kind {
	if pair%2 == 0 {
		return [2]kind{withDevices, cpuOnly}
	}
	return [2]kind{cpuOnly, withDevices}
}

// profileName is the name of a file without blanks and commas.
func profileName(nodes int, w Workload, k kind) string {
	return fmt.Sprintf("%d-%s-%s.pb.gz", nodes, strings.NewReplacer(" ", "-", ",", "").Replace(w.Name), k)
}
