// SPDX-License-Identifier: Apache-2.0

package lookout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"deviceshare/sharing/events"
	"deviceshare/sharing/rivals"
)

// ErrRival is returned when another scheduler was found during the work. The process must end.
var ErrRival = errors.New("another scheduler takes the same pods")

// Reporter tells people of a problem on an object, and that it is over.
type Reporter interface {
	Report(object *corev1.ObjectReference, reason, message string)
	Tell(object *corev1.ObjectReference, reason, message string)
}

// Options are what a Lookout needs.
type Options struct {
	Client kubernetes.Interface
	Report Reporter
	// Own is the Deployment of this process, which gets the events, and OwnLease the lease by which
	// its replicas elect a leader.
	Own, OwnLease rivals.Object
	// Names are the scheduler names of the pods that this process takes.
	Names []string
	// Working is the time between two looks during the work, Waiting that before it.
	Working, Waiting time.Duration
}

// Lookout looks for other schedulers. One goroutine at a time may use it, and others may collect
// its metric meanwhile.
type Lookout struct {
	options Options
	found   prometheus.Gauge
	// uid is that of the own Deployment, and renewed the renewals of leases, of the previous look.
	uid     types.UID
	renewed map[rivals.Object]int64
	// told is what people were told last, "" without another scheduler.
	told string
	// looks counts the looks since then that found the same.
	looks int
}

// repeatAfter is after how many looks people are told again: events are forgotten after an hour.
const repeatAfter = 60

// New returns a lookout that has not looked yet.
func New(o Options) *Lookout {
	return &Lookout{options: o, found: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "deviceshare_scheduler_rivals",
		Help: "Other schedulers that take the same pods, as the scheduler that leads saw last: while there is one it places no pods.",
	})}
}

// Describe implements prometheus.Collector.
func (l *Lookout) Describe(ch chan<- *prometheus.Desc) { l.found.Describe(ch) }

// Collect implements prometheus.Collector.
func (l *Lookout) Collect(ch chan<- prometheus.Metric) { l.found.Collect(ch) }

// RunAlone waits until no other scheduler takes the same pods and then works. It returns what work
// returned, or ErrRival when another scheduler comes: then work still goes on, and the process must
// end. work must return when ctx ends, by itself. A nil Lookout looks for nobody.
func (l *Lookout) RunAlone(ctx context.Context, work func() error) error {
	if l == nil {
		return work()
	}
	if err := l.waitUntilAlone(ctx); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- work() }()
	for {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return <-ended
		case <-time.After(l.options.Working):
		}
		found, err := l.findRivals(ctx)
		switch {
		case err != nil:
			klog.ErrorS(err, "It is unknown whether another scheduler takes the same pods; this one goes on")
		case len(found) > 0:
			l.reportRival(found)
			return fmt.Errorf("%w: %s", ErrRival, found[0])
		}
	}
}

// waitUntilAlone returns an error when ctx ends. A scheduler that could not look does not begin.
func (l *Lookout) waitUntilAlone(ctx context.Context) error {
	for {
		found, err := l.findRivals(ctx)
		switch {
		case err != nil:
			klog.ErrorS(err, "No pod is placed before it is known whether another scheduler takes the same pods")
		case len(found) == 0:
			l.reportAlone()
			return nil
		default:
			l.reportRival(found)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until no other scheduler takes the same pods: %w", ctx.Err())
		case <-time.After(l.options.Waiting):
		}
	}
}

func (l *Lookout) findRivals(ctx context.Context) ([]rivals.Rival, error) {
	facts, err := l.readFacts(ctx)
	if err != nil {
		return nil, err
	}
	found := rivals.Find(facts)
	l.found.Set(float64(len(found)))
	return found, nil
}

// reportRival tells people of the first of some rivals, when it is another one than before, and
// again and again while it is there.
func (l *Lookout) reportRival(found []rivals.Rival) {
	text := found[0].String()
	l.looks++
	if text == l.told && l.looks < repeatAfter {
		return
	}
	l.told, l.looks = text, 0
	l.options.Report.Report(l.ownReference(), events.SecondScheduler, text+". Until it is gone, this scheduler places no pods")
}

func (l *Lookout) reportAlone() {
	if l.told != "" {
		l.options.Report.Tell(l.ownReference(), events.SecondScheduler+events.Resolved, "no other scheduler takes the same pods any more; this one places pods")
	}
	l.told, l.looks = "", 0
}

// ownReference refers to the own Deployment. kubectl describe finds events by the UID.
func (l *Lookout) ownReference() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: l.options.Own.Namespace, Name: l.options.Own.Name, UID: l.uid}
}
