// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"deviceshare/plugins/deviceshare/evictor"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/leader"
	"deviceshare/sharing/events"
)

// mostNamed is how many pods an event names.
const mostNamed = 8

// Reporter tells people about a node or a pod. It must not wait for the API server.
type Reporter interface {
	Report(object *corev1.ObjectReference, reason, message string)
	evictor.Reporter
}

// evictions carries out what Drain decides.
type evictions interface {
	Evict(kubernetes.Interface, evictor.Eviction)
	// Obstacle is why the last attempt to evict a pod failed, nil if none did.
	Obstacle(types.UID) error
	Close()
}

// Drain empties nodes. Look belongs to one goroutine.
type Drain struct {
	evictor evictions
	report  Reporter
	// wanted are the pods that have to leave.
	wanted atomic.Pointer[map[types.UID]bool]
	// told is what the event of a node said last.
	told map[string]string
}

// New returns a Drain whose evictions are carried out while this process leads.
func New(lead leader.Leadership, report Reporter) *Drain {
	d := &Drain{report: report, told: map[string]string{}}
	d.wanted.Store(&map[types.UID]bool{})
	d.evictor = evictor.New(lead, d, report)
	return d
}

// Close ends the workers that evict.
func (d *Drain) Close() { d.evictor.Close() }

// IsWanted implements evictor.Wishes.
func (d *Drain) IsWanted(pod types.UID) bool { return (*d.wanted.Load())[pod] }

// Look looks at all nodes and orders evictions. It changes nothing that is ordered already, and
// takes back what need not be any more. holds reports whether a pod has devices.
func (d *Drain) Look(client kubernetes.Interface, from informers.SharedInformerFactory, holds func(*corev1.Pod) bool) {
	toEmpty, err := nodesToEmpty(from)
	if err != nil {
		klog.ErrorS(err, "Cannot look for nodes whose driver is replaced")
		return
	}
	holders, err := holdersOn(from, toEmpty, holds)
	if err != nil {
		klog.ErrorS(err, "Cannot look which pods hold devices of nodes whose driver is replaced")
		return
	}
	wanted, decided := map[types.UID]bool{}, map[string]Decision{}
	for name := range toEmpty {
		decided[name] = Decide(holders[name])
		for _, pod := range decided[name].Leave {
			wanted[pod.UID] = true
		}
	}
	d.wanted.Store(&wanted)
	for name, now := range decided {
		for _, pod := range now.Leave {
			d.evictor.Evict(client, evictor.Eviction{
				Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, UID: pod.UID,
				Why: fmt.Sprintf("NVIDIA's GPU operator replaces the driver of node %s, of which this pod holds devices", name), Event: events.DriverUpgrade, Condition: events.DriverUpgrade,
			})
		}
		d.reportObstacles(toEmpty[name], &now)
	}
	for name := range d.told {
		if _, still := toEmpty[name]; !still {
			delete(d.told, name)
		}
	}
}

// nodesToEmpty are the nodes that have to be emptied now.
func nodesToEmpty(from informers.SharedInformerFactory) (toEmpty map[string]*corev1.Node, err error) {
	all, err := from.Core().V1().Nodes().Lister().List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	toEmpty = map[string]*corev1.Node{}
	for _, n := range all {
		if Empties(n) {
			toEmpty[n.Name] = n
		}
	}
	return toEmpty, nil
}

// holdersOn are the pods on some nodes that have devices, by the node.
func holdersOn(from informers.SharedInformerFactory, on map[string]*corev1.Node, holds func(*corev1.Pod) bool) (map[string][]*corev1.Pod, error) {
	if len(on) == 0 {
		return nil, nil
	}
	pods, err := from.Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	holders := map[string][]*corev1.Pod{}
	for _, pod := range pods {
		if name := pod.Spec.NodeName; on[name] != nil && holds(pod) {
			holders[name] = append(holders[name], pod)
		}
	}
	return holders, nil
}

// reportObstacles tells on a node which pods hold the upgrade up, whenever that changes.
func (d *Drain) reportObstacles(n *corev1.Node, now *Decision) {
	var held []string
	for _, s := range now.Stay {
		held = append(held, fmt.Sprintf("%s/%s (%s)", s.Pod.Namespace, s.Pod.Name, s.Why))
	}
	for _, pod := range now.Leave {
		if why := describeObstacle(d.evictor.Obstacle(pod.UID)); why != "" {
			held = append(held, fmt.Sprintf("%s/%s (%s)", pod.Namespace, pod.Name, why))
		}
	}
	text := ""
	if len(held) > 0 {
		text = "the driver of this node cannot be replaced before these pods have left: " + joinMost(held)
	}
	if last := d.told[n.Name]; text != last && text != "" {
		ref := nodes.NodeReference(n)
		d.report.Report(&ref, events.GPUDriverUpgradeHeldUp, text)
	}
	d.told[n.Name] = text
}

// joinMost is a list for people, of bounded length.
func joinMost(all []string) string {
	if len(all) > mostNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:mostNamed], ", "), len(all)-mostNamed)
	}
	return strings.Join(all, ", ")
}

// describeObstacle says why the API server does not evict a pod, "" if it was not asked or has not
// refused. Of a PodDisruptionBudget it says what that needs.
func describeObstacle(err error) string {
	var refused apierrors.APIStatus
	if !errors.As(err, &refused) {
		return ""
	}
	status := refused.Status()
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause {
				return cause.Message
			}
		}
	}
	return status.Message
}
