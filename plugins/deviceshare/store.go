// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/cache"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/wire"
)

// Reporter tells people about problems, on the object they concern. It must not
// wait for the API server: it is called between scheduling decisions. Reports
// are made once per problem, not once per session.
type Reporter interface {
	Report(object *corev1.ObjectReference, reason, message string)
	// Tell is for what is no problem but must be known.
	Tell(object *corev1.ObjectReference, reason, message string)
}

// ConfigSource is where the device configuration comes from. Use names the
// ConfigMap to follow from now on and returns at once; naming the same one again
// does nothing.
type ConfigSource interface {
	Use(namespace, name string)
}

// Store is what outlives a session. One process has one; the plugin that
// Volcano builds anew for every session refers to it.
type Store struct {
	backends sharing.Backends
	report   Reporter
	config   ConfigSource
	metrics  *Metrics
	now      func() time.Time

	settings atomic.Pointer[Settings]
	versions atomic.Pointer[wire.ConfigVersions]
	// withheld is why there are no settings, nil if nothing is known about it.
	withheld atomic.Pointer[string]
	// enabled says that the last session took part.
	enabled atomic.Bool
	states  *podStates

	// The fields below are written by the session goroutine only. mu is for
	// readers outside sessions.
	mu      sync.RWMutex
	nodes   map[string]*nodeState
	rank    map[string]float64
	largest sharing.Bytes
	pods    podSource

	reported  map[problem]struct{}
	asks      map[api.TaskID]*ask
	arguments lastArguments
}

// Options are what a store works with. Backends and Report are required.
type Options struct {
	Backends sharing.Backends
	Report   Reporter
	// Config is told which ConfigMap the plugin's arguments name, and has to call
	// Configure when it has read it: until then no pod is given devices. Nil
	// starts with the default settings.
	Config ConfigSource
	// Now tells the time that is written into annotations. Nil is time.Now.
	Now func() time.Time
}

// NewStore makes the store of a process.
func NewStore(o Options) *Store {
	s := &Store{
		backends: o.Backends, report: o.Report, config: o.Config, now: o.Now,
		states: newPodStates(), nodes: map[string]*nodeState{}, rank: map[string]float64{},
		reported: map[problem]struct{}{}, pods: sessionPods{},
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.metrics = newMetrics()
	if o.Config == nil {
		s.Configure(DefaultSettings())
	}
	return s
}

// Configure puts new settings in force from the next session on. Safe for
// concurrent use.
func (s *Store) Configure(settings Settings) { s.settings.Store(&settings) }

// Withhold says why there is nothing to configure the store with: for want of a
// configuration that can be read. Pods with devices are told so while they wait.
// Settings that are in force stay so. Safe for concurrent use.
func (s *Store) Withhold(why string) { s.withheld.Store(&why) }

// unread is why no pod with devices is placed before there are settings.
func (s *Store) unread() string {
	const text = "the scheduler has not read the device configuration yet"
	if why := s.withheld.Load(); why != nil {
		return text + ": " + *why
	}
	return text
}

// Versions notes which configuration is in force, for the metrics. Safe for
// concurrent use.
func (s *Store) Versions(v wire.ConfigVersions) { s.versions.Store(&v) }

// Build makes the plugin of one session.
func (s *Store) Build(arguments framework.Arguments) framework.Plugin {
	return &Plugin{store: s, arguments: arguments}
}

// Binder returns the binder that sends what sessions decided.
func (s *Store) Binder() cache.Binder {
	return &Binder{states: s.states, report: s.report, devices: s}
}

// mustHaveDevices reports whether a pod asks for devices and the plugin is there to
// give them. Safe for concurrent use.
func (s *Store) mustHaveDevices(pod *corev1.Pod) bool {
	settings := s.settings.Load()
	return s.enabled.Load() && settings != nil && corepod.Asks(pod, settings.Names)
}

// follow brings the store up to date with the snapshot of a session.
func (s *Store) follow(ssn *framework.Session, settings *Settings) {
	s.states.compareDecisions(ssn.Nodes, ssn.Jobs)
	fresh := s.reread(ssn.NodeList, settings)

	s.mu.Lock()
	defer s.mu.Unlock()
	pods := s.pods.podsOf(ssn)
	s.states.await(appeared(s.nodes, fresh), pods, settings)
	s.states.compareAwaited(ssn.Nodes, pods)
	added := false
	for _, n := range fresh {
		_, known := s.nodes[n.name]
		added = added || !known
		s.nodes[n.name] = n
		s.states.readFrom(n)
	}
	if len(s.nodes) > len(ssn.NodeList) {
		maps.DeleteFunc(s.nodes, func(name string, _ *nodeState) bool {
			_, ok := ssn.Nodes[name]
			if !ok {
				s.states.left(name)
			}
			return !ok
		})
		added = true
	}
	s.states.compareBound(ssn.Nodes, pods)
	if added {
		s.rerank()
	}
	if added || len(fresh) > 0 {
		s.largest = largestDevice(s.nodes)
	}
	s.announce(fresh)
}

// rerank gives every node its place in the order of names, as a fraction below
// one. It decides between nodes of equal score, which Volcano would draw lots
// for.
func (s *Store) rerank() {
	s.rank = make(map[string]float64, len(s.nodes))
	for i, name := range slices.Sorted(maps.Keys(s.nodes)) {
		s.rank[name] = 1 - float64(i)/float64(len(s.nodes))
	}
}

// announce reports the problems of nodes that changed, each once until it is
// solved.
func (s *Store) announce(fresh []*nodeState) {
	for _, n := range fresh {
		for p := range n.problems() {
			if _, done := s.reported[p]; !done {
				s.reported[p] = struct{}{}
				s.report.Report(p.reference(), p.reason, p.message)
			}
		}
	}
	if len(fresh) == 0 || len(s.reported) == 0 {
		return
	}
	open := map[problem]struct{}{}
	for _, n := range s.nodes {
		for p := range n.problems() {
			open[p] = struct{}{}
		}
	}
	maps.DeleteFunc(s.reported, func(p problem, _ struct{}) bool {
		_, still := open[p]
		return !still
	})
}
