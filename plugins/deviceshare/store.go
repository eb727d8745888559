// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/cache"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/arguments"
	"deviceshare/plugins/deviceshare/binding"
	"deviceshare/plugins/deviceshare/claims"
	"deviceshare/plugins/deviceshare/demand"
	"deviceshare/plugins/deviceshare/drain"
	"deviceshare/plugins/deviceshare/metrics"
	"deviceshare/plugins/deviceshare/mix"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/page"
	"deviceshare/plugins/deviceshare/queues"
	"deviceshare/plugins/deviceshare/room"
	"deviceshare/plugins/deviceshare/selectors"
	"deviceshare/plugins/deviceshare/snapshot"
	"deviceshare/plugins/deviceshare/waiting"
	"deviceshare/plugins/deviceshare/waiting/news"
	"deviceshare/plugins/leader"
	"deviceshare/plugins/liveness"
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

// Signer vouches for placements, by a text that the node checks. It must not wait for the API
// server.
type Signer interface {
	Sign(what wire.Signed) (string, error)
}

// Store is what outlives a session. One process has one; the plugin that
// Volcano builds anew for every session refers to it.
type Store struct {
	backends sharing.Backends
	report   Reporter
	config   ConfigSource
	lead     leader.Leadership
	pulse    *liveness.Pulse
	signer   Signer
	metrics  *metrics.Metrics
	room     *room.Room
	drain    *drain.Drain
	demand   *demand.Demand
	now      func() time.Time
	began    time.Time

	settings atomic.Pointer[nodes.Settings]
	versions atomic.Pointer[wire.ConfigVersions]
	// withheld is why there are no settings, nil if nothing is known about it.
	withheld atomic.Pointer[string]
	// enabled says that the arguments do not turn the plugin off; part is its part in the last
	// session.
	enabled atomic.Bool
	part    atomic.Int32

	cluster *nodes.Cluster
	objects objectSource
	// claims are nil where this scheduler allocates none, and selectors with them. claimSource is
	// nil before the first session, and where the API server has no claims: then claimsOff is set,
	// which belongs to the session goroutine.
	claims      *claims.Registry
	selectors   *selectors.Cache
	claimSource atomic.Pointer[claimSource]
	claimsOff   bool

	// The fields below belong to the session goroutine.
	rank      map[string]float64
	largest   sharing.Bytes
	mix       *mix.Mix
	asks      map[api.TaskID]*ask
	arguments arguments.Memory
	// tierMistakes is what was last said about the tiers.
	tierMistakes string
	// actionMistakes are what was last said about the arguments of actions.
	actionMistakes map[string]string
	// era is that of the arguments and of what was learned, see nodes.Question.
	era uint64
	// current is the plugin of the session that is open, nil if none is or it takes no part.
	current *Plugin
	// waiting is what waiting pods were told.
	waiting *waiting.Memory
	// queues is what is known of their limits, and those of namespaces, from one session to the
	// next.
	queues queues.Memory
}

// toldLimits bound what is remembered of waiting pods, and how many of their conditions a session
// rewrites for new numbers.
func toldLimits() news.Limits { return news.Limits{Pods: 100_000, Repeats: 100} }

// Options are what a store works with. Backends and Report are required.
type Options struct {
	Backends sharing.Backends
	Report   Reporter
	// Config is told which ConfigMap the plugin's arguments name, and has to call
	// Configure when it has read it: until then no pod is given devices. Nil
	// starts with the default settings.
	Config ConfigSource
	// Lead is asked before each bind. Nil is for a scheduler that is the only one.
	Lead leader.Leadership
	// Pulse is told that sessions go on. Nil tells nobody.
	Pulse *liveness.Pulse
	// Signer vouches for placements. Nil leaves them unsigned.
	Signer Signer
	// Evictions carries out evictions. Nil is the API server.
	Evictions room.Evictions
	// DriverUpgrades has pods evicted from nodes whose driver is replaced.
	DriverUpgrades bool
	// Claims has ResourceClaims of our driver given devices, where the API server has them.
	Claims bool
	// Nodes says whether and how nodes are asked for.
	Nodes demand.Options
	// Now tells the time that is written into annotations. Nil is time.Now.
	Now func() time.Time
}

// NewStore makes the store of a process.
func NewStore(o Options) *Store {
	s := &Store{
		backends: o.Backends, report: o.Report, config: o.Config, lead: o.Lead, pulse: o.Pulse, signer: o.Signer, now: o.Now,
		cluster: nodes.NewCluster(o.Backends, o.Report), objects: sessionObjects{}, rank: map[string]float64{},
		waiting: waiting.NewMemory(toldLimits()), mix: mix.New(o.Backends), actionMistakes: map[string]string{},
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.began = s.now()
	if s.lead == nil {
		s.lead = leader.Sole{}
	}
	if o.Claims {
		s.claims, s.selectors = claims.NewRegistry(), selectors.NewCache()
		s.cluster.UseClaims(s.claims)
	}
	s.room = room.New(o.Evictions, s.lead, s.report, s.uptimeSeconds, func() int64 { return s.now().Unix() })
	s.drain = drain.New(s.lead, s.report, o.DriverUpgrades)
	s.demand = demand.New(o.Nodes, s.backends, s.lead, s.report)
	s.metrics = metrics.New()
	if o.Config == nil {
		s.Configure(nodes.DefaultSettings())
	}
	return s
}

// Configure puts new settings in force from the next session on. Safe for
// concurrent use.
func (s *Store) Configure(settings nodes.Settings) { s.settings.Store(&settings) }

// Withhold says why there is nothing to configure the store with: for want of a
// configuration that can be read. Pods with devices are told so while they wait.
// Settings that are in force stay so. Safe for concurrent use.
func (s *Store) Withhold(why string) { s.withheld.Store(&why) }

// unreadConfigError is why no pod with devices is placed before there are settings.
func (s *Store) unreadConfigError() error {
	if why := s.withheld.Load(); why != nil {
		return fmt.Errorf("%w: %s", errUnread, *why)
	}
	return errUnread
}

var errUnread = errors.New("the scheduler has not read the device configuration yet")

// Versions notes which configuration is in force, for the metrics. Safe for
// concurrent use.
func (s *Store) Versions(v wire.ConfigVersions) { s.versions.Store(&v) }

// Build makes the plugin of one session.
func (s *Store) Build(raw framework.Arguments) framework.Plugin {
	return &Plugin{judge: judge{store: s}, arguments: raw}
}

// Binder returns the binder that sends what sessions decided.
func (s *Store) Binder() cache.Binder {
	return binding.New(s.cluster.Pods(), s.claims, s.report, s, s.lead, s.metrics)
}

// LedgerHandler answers at page.Path with who holds what.
func (s *Store) LedgerHandler() http.Handler { return page.Handler(s.cluster) }

// Describe implements prometheus.Collector.
func (s *Store) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, out) }

// Collect implements prometheus.Collector. Safe for concurrent use.
func (s *Store) Collect(out chan<- prometheus.Metric) {
	last := part(s.part.Load())
	state := metrics.State{
		TakesPart: last == takesPart, IsAside: last == standsAway,
		Config: s.versions.Load(), Cluster: s.cluster, Waiting: s.waiting.Counts(),
		Holds: s.room.Holds(), HoldEnds: s.room.Ends(), NodesNeeded: s.demand.Needed(),
		Namespaces: s.queues.Usage(),
	}
	if now := s.mix.Current(); now != nil {
		state.MeasureFree = now.Usable
	}
	s.metrics.Collect(out, state)
}

// MustHaveDevices reports whether a pod asks for devices and the plugin is there to
// give them. Safe for concurrent use.
func (s *Store) MustHaveDevices(pod *corev1.Pod) bool {
	settings := s.settings.Load()
	return s.enabled.Load() && settings != nil && (corepod.Asks(pod, settings.Names) || s.claimReader().namesOurClaim(pod))
}

// part is what the plugin had to do with the last session.
type part int32

const (
	noSession  part = iota // there was none: another scheduler may lead
	takesPart              // it took part
	standsAway             // it was turned off, or the scheduler's configuration does not name it
)

// standAside notes that a session goes on without the plugin. What it knows stands still from then
// on, and is no longer told to those who ask for metrics.
func (s *Store) standAside() {
	s.part.Store(int32(standsAway))
	s.waiting.Forget()
}

// updateFromSnapshot brings the store up to date with the snapshot of a session.
func (s *Store) updateFromSnapshot(ssn *framework.Session, settings *nodes.Settings) {
	change := s.cluster.Follow(snapshot.Of(ssn, s.objects.podsOf(ssn)), settings, s.now())
	if change.Names {
		s.rank = rankByName(s.cluster.Nodes())
	}
	if change.Nodes {
		s.largest = largestDevice(s.cluster.Nodes())
	}
}

// evictDrained has pods leave nodes whose driver is replaced, and devices that people drain.
func (s *Store) evictDrained(ssn *framework.Session) {
	holds := func(pod *corev1.Pod) bool {
		_, isGiven := pod.Annotations[wire.PodPlacement]
		return isGiven || s.MustHaveDevices(pod)
	}
	s.drain.Look(ssn.KubeClient(), ssn.InformerFactory(), holds, s.cluster.Drained())
}

// uptimeSeconds is the time on a clock that goes on when that of the machine is set.
func (s *Store) uptimeSeconds() int64 { return int64(s.now().Sub(s.began) / time.Second) }

// rankByName gives every node its place in the order of names, as a fraction of at most
// one. It decides between nodes of equal score, which Volcano would draw lots for.
func rankByName(known map[string]*nodes.Node) map[string]float64 {
	rank := make(map[string]float64, len(known))
	for i, name := range slices.Sorted(maps.Keys(known)) {
		rank[name] = 1 - float64(i)/float64(len(known))
	}
	return rank
}

// objectSource lists objects of the API server, as the informers of a session have them.
type objectSource interface {
	podsOf(*framework.Session) corelisters.PodLister
	quotasOf(*framework.Session) corelisters.ResourceQuotaLister
	// claimsOf returns where ResourceClaims and DeviceClasses are listed, nil if the API server
	// has none.
	claimsOf(*framework.Session) *claimInformers
}

// sessionObjects is the objectSource of a running scheduler.
type sessionObjects struct{}

func (sessionObjects) podsOf(ssn *framework.Session) corelisters.PodLister {
	return ssn.InformerFactory().Core().V1().Pods().Lister()
}

func (sessionObjects) quotasOf(ssn *framework.Session) corelisters.ResourceQuotaLister {
	return ssn.InformerFactory().Core().V1().ResourceQuotas().Lister()
}
