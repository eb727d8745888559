// SPDX-License-Identifier: Apache-2.0

package offline_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	evanphx "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/config"
	"deviceshare/plugins/admission"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/offline"
	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/wire"
)

// What is admitted is served as it is named, and everything else is refused by the name of the
// field, by the webhook and, where the webhook was away, by the scheduler. Random pods go through
// the webhook and Volcano's scheduler as they are shipped, onto nodes with the models that drivers
// name. The oracle (wishes_oracle_test.go) shares no code with the product: it knows what a wish
// means because it made it.
func TestWhatIsAdmittedIsServedAsNamedAndTheRestIsRefused(t *testing.T) {
	r := rand.New(rand.NewPCG(5000, 10))
	w := newWorld(t)
	counts := map[string]int{}
	const together = 10
	pods := 5000
	if testing.Short() {
		pods = 1000
	}
	for first := 0; first < pods; first += together {
		wishes := make([]*wish, together)
		for i := range wishes {
			wishes[i] = randomWish(r, fmt.Sprintf("p%d", first+i))
			w.admit(wishes[i], counts)
			w.submit(wishes[i])
		}
		w.settle()
		for _, wish := range wishes {
			w.check(wish, counts)
			w.remove(wish)
		}
		if t.Failed() {
			t.Fatalf("stopped after %d pods", first+together)
		}
	}
	t.Logf("%v", counts)
	for kind, share := range map[string]int{"served": 5, "refused": 5, "waits": 100, "narrowed by model": 12, "narrowed by mode": 50, "narrowed by id": 50} {
		if counts[kind] < pods/share {
			t.Errorf("%d of %d pods are of kind %q, want one in %d: the test tries little", counts[kind], pods, kind, share)
		}
	}
}

// world is a cluster with the webhook in front of it.
type world struct {
	*testing.T
	settings admission.Settings
	cluster  *offline.Cluster
	devices  map[string]card // by UUID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	d := config.DefaultDevice()
	w := &world{T: t, settings: admission.NewSettings(d, []string{"volcano"}), devices: map[string]card{}}
	c, err := offline.New(offline.Options{Backends: factory.New(), SchedulerName: "volcano", Now: time.Unix(1700000000, 0),
		Settings: nodes.Settings{Names: d.Names(), Factor: d.MemoryFactor, Defaults: d.Defaults()}})
	if err != nil {
		t.Fatal(err)
	}
	w.cluster = c
	for _, card := range cards() {
		w.devices[card.id(0)], w.devices[card.id(1)] = card, card
		if err := c.Add(nodeOf(t, card)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// nodeOf is a node with two cards of a kind, as its device plugin publishes them.
func nodeOf(t *testing.T, c card) *corev1.Node {
	t.Helper()
	inv := sharing.Inventory{Node: c.node}
	for i := range 2 {
		d := sharing.Device{ID: sharing.DeviceID(c.id(i)), Index: i, Model: c.model, Memory: sharing.MiBs(15360), Cores: 100, MaxShares: 10, Healthy: true, Mode: sharing.Mode(c.mode), NUMA: -1}
		if c.mode == "mig" {
			d.MIG = &sharing.Partitioning{Slices: 4, Profiles: []sharing.Profile{{Name: "1g.4gb", Memory: sharing.MiBs(3840), Compute: 1, Size: 1, Starts: []int{0, 1, 2, 3}, Max: 4}}}
		}
		inv.Devices = append(inv.Devices, d)
	}
	annotations, err := wire.NodeAnnotations(inv, 1)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: c.node, Annotations: annotations},
		Status: corev1.NodeStatus{
			Allocatable: amounts(map[string]string{"cpu": "64", "memory": "64Gi", "pods": "100", "volcano.sh/vgpu-number": "20", "volcano.sh/vgpu-memory": "30720", "volcano.sh/vgpu-cores": "200"}),
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// admit has the webhook complete and judge the pod, and compares the fields that it refuses.
func (w *world) admit(wish *wish, counts map[string]int) {
	w.Helper()
	if patch := admission.Complete(wish.pod, w.settings); len(patch) > 0 {
		decoded, err := evanphx.DecodePatch(asJSON(w, patch))
		if err != nil {
			w.Fatal(err)
		}
		raw, err := decoded.Apply(asJSON(w, wish.pod))
		if err != nil {
			w.Fatal(err)
		}
		wish.pod = &corev1.Pod{}
		if err := json.Unmarshal(raw, wish.pod); err != nil {
			w.Fatal(err)
		}
	}
	verdict := admission.Review(wish.pod, w.settings)
	fields := map[string]bool{}
	for _, m := range verdict.Mistakes {
		fields[m.Path] = true
		counts["mistakes"]++
	}
	if got, want := slices.Sorted(maps.Keys(fields)), slices.Sorted(maps.Keys(wish.refused)); !slices.Equal(got, want) {
		w.Errorf("%s: the webhook refuses %q\nwant %q\n%s", wish, got, want, verdict.Message())
	}
}

// submit gives the pod to the scheduler, refused or not: the webhook may be away.
func (w *world) submit(wish *wish) {
	w.Helper()
	p := wish.pod.DeepCopy()
	p.UID, p.Status.Phase = types.UID("uid-"+p.Name), corev1.PodPending
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations["scheduling.k8s.io/group-name"] = p.Name
	group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace},
		Spec:   schedulingv1beta1.PodGroupSpec{MinMember: 1, Queue: "default"},
		Status: schedulingv1beta1.PodGroupStatus{Phase: schedulingv1beta1.PodGroupPending}}
	for _, o := range []any{group, p} {
		if err := w.cluster.Add(o); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *world) settle() {
	w.Helper()
	if _, err := w.cluster.Settle(); err != nil {
		w.Fatal(err)
	}
}

// check compares what the scheduler did with what the oracle says.
func (w *world) check(wish *wish, counts map[string]int) {
	w.Helper()
	p, _ := w.cluster.Pod(types.NamespacedName{Namespace: wish.pod.Namespace, Name: wish.pod.Name})
	why := w.cluster.Why(p)
	if len(wish.refused) > 0 {
		counts["refused"]++
		if p.Spec.NodeName != "" {
			w.Errorf("%s: refused for %q, and placed on %s", wish, slices.Sorted(maps.Keys(wish.refused)), p.Spec.NodeName)
		}
		for field := range wish.refused {
			if !strings.Contains(why, field+":") {
				w.Errorf("%s: the scheduler says %q, want %s", wish, why, field)
			}
		}
		return
	}
	serves := wish.nodes()
	switch {
	case p.Spec.NodeName == "" && len(serves) > 0:
		w.Errorf("%s: waits, and %q serve it: %s", wish, serves, why)
	case p.Spec.NodeName == "":
		counts["waits"]++
		if why == "" {
			w.Errorf("%s: waits without a reason", wish)
		}
	default:
		counts["served"]++
		w.compare(wish, p)
	}
	wish.count(counts)
}

// compare looks at what a pod got, as the annotation on it says.
func (w *world) compare(wish *wish, p *corev1.Pod) {
	w.Helper()
	var got struct {
		Containers []struct {
			Shares []struct {
				Device string `json:"uuid"`
				Memory int64  `json:"memory"`
				Cores  int64  `json:"cores"`
				Mode   string `json:"mode"`
			} `json:"shares"`
		} `json:"containers"`
	}
	if err := json.Unmarshal([]byte(p.Annotations["volcano.sh/vgpu-placement"]), &got); err != nil || len(got.Containers) != 1 {
		w.Fatalf("%s: %v: %s", wish, err, p.Annotations["volcano.sh/vgpu-placement"])
	}
	shares := got.Containers[0].Shares
	if len(shares) != wish.number {
		w.Errorf("%s: got %d devices", wish, len(shares))
	}
	for _, s := range shares {
		card := w.devices[s.Device]
		if !wish.accepts(card, s.Device) || s.Mode != card.mode || card.node != p.Spec.NodeName {
			w.Errorf("%s: got %s (%s) in mode %s", wish, card.model, s.Device, s.Mode)
		}
		if card.mode != "mig" && (s.Memory != wish.bytes() || s.Cores != int64(wish.cores)) || s.Memory < wish.bytes() {
			w.Errorf("%s: got %d bytes and %d percent", wish, s.Memory, s.Cores)
		}
	}
}

func (w *world) remove(wish *wish) {
	w.Helper()
	name := types.NamespacedName{Namespace: wish.pod.Namespace, Name: wish.pod.Name}
	if err := w.cluster.RemovePod(name); err != nil {
		w.Fatal(err)
	}
	w.cluster.RemoveGroup(name)
}

func asJSON(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A pod that asks only by names that nobody serves here is no pod with devices. It would wait for
// ever without a word: no node has the resource, and Volcano keeps its group out of the queue.
func TestAPodOfAnotherWayToShareIsToldWhatToWrite(t *testing.T) {
	w := newWorld(t)
	for name, want := range map[string]string{
		"volcano.sh/gpu-memory": "write volcano.sh/vgpu-memory", "volcano.sh/gpu-number": "write volcano.sh/vgpu-number", "nvidia.com/gpumem": "write volcano.sh/vgpu-memory",
		"nvidia.com/gpucores": "write volcano.sh/vgpu-cores", "volcano.sh/vgpu-mem": "do you mean volcano.sh/vgpu-memory?",
	} {
		limits := amounts(map[string]string{name: "1024"})
		pod := "asks-" + strings.NewReplacer("/", "-", ".", "-").Replace(name)
		wish := &wish{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: "team"}, Spec: corev1.PodSpec{SchedulerName: "volcano",
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits}}}}},
			refused: map[string]bool{"spec.containers[0] (main) resources.limits[" + name + "]": true}}
		counts := map[string]int{}
		w.admit(wish, counts)
		w.submit(wish)
		w.settle()
		w.check(wish, counts)
		p, _ := w.cluster.Pod(types.NamespacedName{Namespace: "team", Name: pod})
		if why := w.cluster.Why(p); !strings.Contains(why, want) {
			t.Errorf("%s: %q, want %q", name, why, want)
		}
		w.remove(wish)
	}
}
