// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
)

// Observer looks at a cluster. It is safe for concurrent use.
type Observer struct {
	cluster *sandbox.Cluster
	proc    procfs.FS

	mu     sync.Mutex
	pods   map[string]Pod // by UID, also those that are gone
	offers map[string]Offer
	// standings by UID, of everybody that was ever seen
	standings map[string]Standing
}

// NewObserver begins to look at a cluster.
func NewObserver(c *sandbox.Cluster) (*Observer, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, fmt.Errorf("look at the machine's processes: %w", err)
	}
	return &Observer{cluster: c, proc: proc, pods: map[string]Pod{}, standings: map[string]Standing{}}, nil
}

// Sight is what came of one look.
type Sight struct {
	Violations []Violation
	// Ledger says why the scheduler's ledger was not compared; nil if it was.
	Ledger error
}

// Look reads everything and returns the promises that are broken. An error is one of looking: the
// API server may be away.
//
// The order matters. The driver is asked before the API server, so that whoever uses a device is
// known there; a pod that has ended since is known from before. Processes are listed before and
// after the driver is asked, so that it is known who was alive at that moment.
func (o *Observer) Look(ctx context.Context) (Sight, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, err := members(o.proc, o.cluster.Cgroup())
	if err != nil {
		return Sight{}, err
	}
	show, err := o.cluster.FakeGPU(ctx, "show")
	if err != nil {
		return Sight{}, fmt.Errorf("ask the driver: %w", err)
	}
	after, err := members(o.proc, o.cluster.Cgroup())
	if err != nil {
		return Sight{}, err
	}
	owners := map[int]owner{}
	for _, m := range before {
		owners[m.cluster] = m.owner
	}
	now, err := readMachine(show, owners)
	if err != nil {
		return Sight{}, err
	}
	if err := o.ask(ctx); err != nil {
		return Sight{}, err
	}
	ledger, err := o.ledger(ctx)
	return Sight{Ledger: err, Violations: Violations(Scene{Pods: o.pods, Offers: o.offers, Processes: now.processes,
		Partitions: now.partitions, Alive: alive(before, after), Ledger: ledger, Standings: o.standings})}, nil
}

// Agree reports how the ledger of the scheduler that leads differs from what the API server says;
// empty if it does not. It makes sense while nothing happens.
func (o *Observer) Agree(ctx context.Context) (difference string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.ask(ctx); err != nil {
		return "", err
	}
	ledger, err := o.ledger(ctx)
	if err != nil {
		return "", err
	}
	return disagreement(o.pods, ledger), nil
}

// Evictions returns what was seen of them so far.
func (o *Observer) Evictions() Evictions {
	o.mu.Lock()
	defer o.mu.Unlock()
	return countEvictions(o.standings)
}

// Left lists what pods have left behind that are gone: memory at the driver, CDI specifications,
// containers' directories.
func (o *Observer) Left(ctx context.Context) ([]string, error) {
	show, err := o.cluster.FakeGPU(ctx, "show")
	if err != nil {
		return nil, fmt.Errorf("ask the driver: %w", err)
	}
	var out []string
	for line := range strings.Lines(show) {
		if w := strings.Fields(line); len(w) > 0 && w[0] == "process" && !strings.Contains(line, "used_mib=0 ") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	files, err := o.cluster.Run(ctx, "sh", "-c", "ls -d /run/cdi/volcano.sh-vgpu-*.json "+records+"/hami-core/containers/* 2>/dev/null || true")
	if err != nil {
		return nil, fmt.Errorf("list the device plugin's files: %w", err)
	}
	return append(out, strings.Fields(files)...), nil
}

// ask reads pods and node from the API server.
func (o *Observer) ask(ctx context.Context) error {
	list, err := o.cluster.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for uid, p := range o.pods {
		p.Holds = false // unless it is still there
		o.pods[uid] = p
	}
	for i := range list.Items {
		uid := string(list.Items[i].UID)
		o.standings[uid] = readStanding(&list.Items[i])
		p, placed, err := readPod(&list.Items[i])
		if err != nil {
			return err
		}
		if !placed {
			continue
		}
		o.pods[p.UID] = p.knowing(o.pods[p.UID])
	}
	node, err := o.cluster.Client().CoreV1().Nodes().Get(ctx, sandbox.NodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read node %s: %w", sandbox.NodeName, err)
	}
	offers, err := readOffers(node)
	if offers != nil {
		o.offers = offers
	}
	return err
}

// ledgerPatience is how long a scheduler may take to answer. One that is frozen never does.
const ledgerPatience = 2 * time.Second

// ledger asks the scheduler that leads what it believes.
func (o *Observer) ledger(ctx context.Context) (Ledger, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerPatience)
	defer cancel()
	text, err := o.cluster.SchedulersLedger(ctx)
	if err != nil {
		return nil, err
	}
	return readLedger(text, sandbox.NodeName)
}

// knowing is the pod with the IDs that it had when it was seen before: a container may have had
// more lives than the API server tells of.
func (p Pod) knowing(before Pod) Pod {
	for k := range min(len(p.Containers), len(before.Containers)) {
		ids := append(p.Containers[k].IDs, before.Containers[k].IDs...)
		slices.Sort(ids)
		p.Containers[k].IDs = slices.Compact(ids)
	}
	return p
}
