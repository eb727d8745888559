// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"deviceshare/plugins/deviceshare/evictor"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/leader"
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

// Drain empties nodes and devices. Look belongs to one goroutine.
type Drain struct {
	evictor evictions
	report  Reporter
	// upgrades says that nodes are emptied whose drivers are replaced.
	upgrades bool
	// wanted are the pods that have to leave.
	wanted atomic.Pointer[map[types.UID]bool]
	// told is what the event about a target said last.
	told map[string]string
}

// New returns a Drain whose evictions are carried out while this process leads. It empties nodes
// whose drivers are replaced if told so.
func New(lead leader.Leadership, report Reporter, upgrades bool) *Drain {
	d := &Drain{report: report, upgrades: upgrades, told: map[string]string{}}
	d.wanted.Store(&map[types.UID]bool{})
	d.evictor = evictor.New(lead, d, report)
	return d
}

// Close ends the workers that evict.
func (d *Drain) Close() { d.evictor.Close() }

// IsWanted implements evictor.Wishes.
func (d *Drain) IsWanted(pod types.UID) bool { return (*d.wanted.Load())[pod] }

// Look looks at all nodes, and at the devices that people drain, and orders evictions. It changes
// nothing that is ordered already, and takes back what need not be any more. holds reports whether
// a pod has devices.
func (d *Drain) Look(client kubernetes.Interface, from informers.SharedInformerFactory, holds func(*corev1.Pod) bool, drained []nodes.DrainedDevice) {
	targets := map[string]target{}
	if d.upgrades {
		found, err := upgradeTargets(from, holds)
		if err != nil {
			klog.ErrorS(err, "Cannot look who has to leave")
			return
		}
		maps.Copy(targets, found)
	}
	for i := range drained {
		targets[drained[i].Node.Name+"/"+string(drained[i].ID)] = targetOf(&drained[i])
	}
	d.orderEvictions(client, targets)
}

// orderEvictions orders that targets be emptied, and nothing else.
func (d *Drain) orderEvictions(client kubernetes.Interface, targets map[string]target) {
	wanted := map[types.UID]bool{}
	for _, t := range targets {
		for _, pod := range t.decided.Leave {
			wanted[pod.UID] = true
		}
	}
	d.wanted.Store(&wanted)
	for _, key := range slices.Sorted(maps.Keys(targets)) {
		t := targets[key]
		d.reportObstacles(key, &t) // to former orders: how soon these are answered is chance
		for _, pod := range t.decided.Leave {
			d.evictor.Evict(client, evictor.Eviction{
				Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, UID: pod.UID, Why: t.why, Event: t.event, Condition: t.event,
			})
		}
	}
	maps.DeleteFunc(d.told, func(key, _ string) bool {
		_, still := targets[key]
		return !still
	})
}

// reportObstacles tells on a node which pods keep a target from being empty, whenever that changes.
func (d *Drain) reportObstacles(key string, t *target) {
	var held []string
	for _, s := range t.decided.Stay {
		held = append(held, fmt.Sprintf("%s/%s (%s)", s.Pod.Namespace, s.Pod.Name, s.Why))
	}
	for _, pod := range t.decided.Leave {
		if why := describeObstacle(d.evictor.Obstacle(pod.UID)); why != "" {
			held = append(held, fmt.Sprintf("%s/%s (%s)", pod.Namespace, pod.Name, why))
		}
	}
	text := ""
	if len(held) > 0 {
		text = t.heldUp + ": " + joinMost(held)
	}
	if text != d.told[key] && text != "" {
		ref := nodes.NodeReference(t.node)
		d.report.Report(&ref, t.heldUpEvent, text)
	}
	d.told[key] = text
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
