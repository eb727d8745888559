// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"deviceshare/sharing/wire"
)

// NodeSource says what is true of the node. Implementations are safe for concurrent
// use.
type NodeSource interface {
	// NodeState is what is true now; false while the devices are not known.
	NodeState() (NodeState, bool)
	// Unread says why the devices have not been read since the start. isFailing is false if nothing
	// has failed so far: at every start it takes a moment.
	Unread() (why string, isFailing bool)
	// Labelled is called with the labels of the node before each NodeState, and whenever they may
	// have changed before that. It must not block.
	Labelled(labels map[string]string)
	// WantDriver is called with whether the node says that its driver is to be let go, also before
	// the devices are known. It must not block.
	WantDriver(is bool)
	// Withdraw is called, any number of times, while the node says that its device plugin
	// is being uninstalled. It must not block.
	Withdraw()
}

// PublisherConfig is what a Publisher works with.
type PublisherConfig struct {
	Client kubernetes.Interface
	Node   string
	Source NodeSource
	// Changes holds a token when Source may answer differently.
	Changes <-chan struct{}
	// Ended is told how every attempt to publish ended; nil if well. It may be nil.
	Ended func(error)
	// Retry is the wait after a failure; 5 s when zero.
	Retry time.Duration
	// Late is how long after the start nothing is offered any more if the devices have not been
	// read, though nothing has failed; 10 s when zero.
	Late time.Duration
}

// Publisher is the only writer of what concerns us on the node object.
//
// What was published before the start says that the node takes pods. Until the devices are ready
// nobody knows whether that is still true, so that it is taken back: at once if the driver fails,
// and after a while if it does not answer. The devices stay listed, and the capacity stays, since
// pods hold shares of them.
type Publisher struct {
	cfg      PublisherConfig
	informer cache.SharedIndexInformer
	seen     chan struct{} // a token when the node was seen to change
	stale    []string      // capacity names published before and no longer wanted
	last     []string
	signed   time.Time // when the sign of life was written last
	ready    chan struct{}
}

// NewPublisher returns a publisher that has not started.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	if cfg.Retry == 0 {
		cfg.Retry = 5 * time.Second
	}
	if cfg.Late == 0 {
		cfg.Late = 10 * time.Second
	}
	informer := coreinformers.NewFilteredNodeInformer(cfg.Client, 0, cache.Indexers{}, fieldSelector("metadata.name", cfg.Node))
	p := &Publisher{cfg: cfg, informer: informer, seen: make(chan struct{}, 1), ready: make(chan struct{})}
	poke := func(any) {
		select {
		case p.seen <- struct{}{}:
		default:
		}
	}
	_, err := p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: poke, UpdateFunc: func(_, o any) { poke(o) }, DeleteFunc: poke,
	})
	if err != nil {
		return nil, fmt.Errorf("watch node %s: %w", cfg.Node, err)
	}
	return p, nil
}

// Begin says that the devices are ready to be published. It is called once.
func (p *Publisher) Begin() { close(p.ready) }

// Run publishes until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	go p.informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), p.informer.HasSynced) || !p.withholdUntilReady(ctx) {
		return nil
	}
	again := time.After(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.cfg.Changes:
		case <-p.seen:
		case <-again:
		}
		again = nil
		wait, err := p.reconcileNode(ctx)
		if p.reportOutcome(err); err != nil {
			wait = p.cfg.Retry
		}
		if wait > 0 {
			again = time.After(wait)
		}
	}
}

func (p *Publisher) reportOutcome(err error) {
	if p.cfg.Ended != nil {
		p.cfg.Ended(err)
	}
	if err != nil {
		klog.ErrorS(err, "cannot publish the devices", "node", p.cfg.Node)
	}
}

// withholdUntilReady offers nothing while the devices cannot be read. It returns true when they are
// ready, and false if ctx ends before that.
func (p *Publisher) withholdUntilReady(ctx context.Context) bool {
	late, again, isLate := time.After(p.cfg.Late), time.After(0), false
	for {
		select {
		case <-ctx.Done():
			return false
		case <-p.ready:
			return true
		case <-late:
			isLate = true
		case <-p.cfg.Changes:
		case <-p.seen:
		case <-again:
		}
		if node, ok := p.readNode(); ok {
			if wait := p.observeNode(node, time.Now()); wait > 0 {
				again = time.After(wait)
			}
		}
		why, isFailing := p.cfg.Source.Unread()
		if !isFailing && !isLate {
			continue
		}
		err := p.withholdDevices(ctx, why)
		if p.reportOutcome(err); err != nil {
			again = time.After(p.cfg.Retry)
		}
	}
}

// Withhold offers nothing of the node, once: for a plugin that ends because it cannot read the
// driver.
func (p *Publisher) Withhold(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), p.informer.HasSynced) {
		return
	}
	why, _ := p.cfg.Source.Unread()
	p.reportOutcome(p.withholdDevices(ctx, why))
}

// withholdDevices makes what the node says of its devices say that they take no pods.
func (p *Publisher) withholdDevices(ctx context.Context, why string) error {
	node, ok := p.readNode()
	if !ok {
		return fmt.Errorf("node %s is not known to the API server; is --node-name right?", p.cfg.Node)
	}
	want := DesiredNode{Annotations: wire.Withhold(node.Annotations, why)}
	if err := p.patchNode(ctx, annotationPatch(node, want, time.Now().UTC().Format(time.RFC3339), false)); err != nil {
		return fmt.Errorf("write annotations of node %s: %w", p.cfg.Node, err)
	}
	return nil
}

// reconcileNode makes the node equal to what is wanted. Where something is wanted later, wait says
// when; else it is 0.
func (p *Publisher) reconcileNode(ctx context.Context) (wait time.Duration, err error) {
	node, ok := p.readNode()
	var released time.Duration
	if ok {
		released = p.observeNode(node, time.Now())
	}
	state, ready := p.cfg.Source.NodeState()
	if !ready {
		return 0, nil
	}
	if !ok {
		return 0, fmt.Errorf("node %s is not known to the API server; is --node-name right?", p.cfg.Node)
	}
	if isToWithdraw(node, time.Now()) {
		p.cfg.Source.Withdraw()
	}
	if state.Withdrawn {
		return 0, p.patchNode(ctx, withoutAnnotations(node))
	}
	want, err := Desired(state)
	if err != nil {
		return 0, err
	}
	p.noteStaleNames(want)
	now := time.Now()
	isDue, wait := signOfLife(node, p.signed, now)
	changes := annotationPatch(node, want, now.UTC().Format(time.RFC3339), isDue)
	if err := p.patchNode(ctx, changes); err != nil {
		return 0, fmt.Errorf("write annotations of node %s: %w", p.cfg.Node, err)
	}
	if changes != nil {
		p.signed = now
	}
	if err := p.patchNode(ctx, capacityPatch(node, want, p.stale), "status"); err != nil {
		return 0, fmt.Errorf("write capacity of node %s: %w", p.cfg.Node, err)
	}
	if released > 0 && (wait == 0 || released < wait) {
		wait = released
	}
	return wait, nil
}

// readNode is the node as it was seen last; false if it is not known.
func (p *Publisher) readNode() (*corev1.Node, bool) {
	object, _, err := p.informer.GetStore().GetByKey(p.cfg.Node)
	node, ok := object.(*corev1.Node)
	return node, ok && err == nil
}

// observeNode tells the source what people and programs want of the node. Where that ends by
// itself, wait says when; else it is 0.
func (p *Publisher) observeNode(node *corev1.Node, now time.Time) (wait time.Duration) {
	p.cfg.Source.Labelled(node.Labels)
	wait = releasedFor(node, now)
	p.cfg.Source.WantDriver(wait > 0)
	return wait
}

// noteStaleNames notes which names are no longer ours after the administrator changed
// them. Names given over to a device plugin resource are the kubelet's to remove.
func (p *Publisher) noteStaleNames(want DesiredNode) {
	if want.Capacity == nil {
		p.last, p.stale = nil, nil
		return
	}
	for _, name := range p.last {
		if _, still := want.Capacity[name]; !still && !slices.Contains(p.stale, name) {
			p.stale = append(p.stale, name)
		}
	}
	p.stale = slices.DeleteFunc(p.stale, func(name string) bool { _, ours := want.Capacity[name]; return ours })
	p.last = slices.Sorted(maps.Keys(want.Capacity))
}

func (p *Publisher) patchNode(ctx context.Context, patch map[string]any, subresource ...string) error {
	if patch == nil {
		return nil
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := p.cfg.Client.CoreV1().Nodes().Patch(ctx, p.cfg.Node, types.MergePatchType, text, metav1.PatchOptions{}, subresource...); err != nil {
		return err
	}
	klog.InfoS("node updated", "node", p.cfg.Node, "subresource", strings.Join(subresource, "/"), "bytes", len(text))
	klog.V(4).InfoS("the update was", "patch", string(text))
	return nil
}
