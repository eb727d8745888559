// SPDX-License-Identifier: Apache-2.0

package nodeorder

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8sframework "k8s.io/kubernetes/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/metrics"
	"volcano.sh/volcano/pkg/scheduler/plugins/nodeorder"
	"volcano.sh/volcano/pkg/scheduler/plugins/util/k8s"
)

// room is a cluster with the plugin in a session of it.
type room struct {
	plugin *plugin
	nodes  []*api.NodeInfo
}

// informed has a ReplicaSet, whose pods are spread over nodes without asking for it.
func informed() informers.SharedInformerFactory {
	metrics.InitKubeSchedulerRelatedMetrics()
	return informers.NewSharedInformerFactory(fake.NewClientset(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "set", Namespace: "default"},
		Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}}), 0)
}

// opened opens what the plugin uses of a session.
func opened(t testing.TB, factory informers.SharedInformerFactory, arguments framework.Arguments, nodes []*api.NodeInfo) *room {
	t.Helper()
	byName := map[string]*api.NodeInfo{}
	for _, n := range nodes {
		byName[n.Name] = n
	}
	r := &room{nodes: nodes}
	p, ok := newPlugin(arguments, &nodeInfoCache{of: map[string]*k8sframework.NodeInfo{}}).(*plugin)
	if !ok {
		t.Fatal("this version of Volcano has another plugin")
	}
	p.Handle = k8s.NewFramework(framework.GenerateNodeMapAndSlice(byName), k8s.WithInformerFactory(factory))
	p.InitPlugin()
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	r.plugin = p
	return r
}

// draw returns nodes with and without taints and zones, and with pods that like and dislike others.
func draw(random *rand.Rand) []*api.NodeInfo {
	var nodes []*api.NodeInfo
	for i := range 1 + random.IntN(12) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), Labels: map[string]string{corev1.LabelHostname: fmt.Sprint("n", i)}}}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourcePods: resource.MustParse("100")}
		if random.IntN(3) > 0 {
			n.Labels[corev1.LabelTopologyZone] = fmt.Sprint("z", random.IntN(3))
		}
		for k := range random.IntN(3) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: fmt.Sprint("t", k), Effect: corev1.TaintEffectPreferNoSchedule})
		}
		info := api.NewNodeInfo(n)
		for k := range random.IntN(4) {
			pod := drawPod(random, fmt.Sprint("on-", i, "-", k))
			pod.Spec.NodeName, pod.Status.Phase = n.Name, corev1.PodRunning
			_ = info.AddTask(api.NewTaskInfo(pod))
		}
		nodes = append(nodes, info)
	}
	return nodes
}

// drawPod draws what a pod says of others and of nodes. Many pods say nothing.
func drawPod(random *rand.Rand, name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Labels: map[string]string{"app": string(rune('a' + random.IntN(2)))}}}
	pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	term := corev1.PodAffinityTerm{TopologyKey: []string{corev1.LabelHostname, corev1.LabelTopologyZone}[random.IntN(2)], LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}
	preferred := []corev1.WeightedPodAffinityTerm{{Weight: int32(1 + random.IntN(100)), PodAffinityTerm: term}}
	switch random.IntN(8) {
	case 0:
		pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred}}
	case 1:
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred}}
	case 2:
		pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
	case 3:
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: term.TopologyKey, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: term.LabelSelector}}
	case 4:
		yes := true
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set", Controller: &yes}}
	case 5:
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "t0", Operator: corev1.TolerationOpExists}}
	}
	return pod
}

// The oracle is Volcano's own function. Between two pods nodes change, come and go.
func TestEveryScoreIsVolcanos(t *testing.T) {
	told, factory := map[bool]int{}, informed()
	known := &nodeInfoCache{of: map[string]*k8sframework.NodeInfo{}}
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 1))
		arguments := framework.Arguments{}
		for _, key := range []string{nodeorder.PodAffinityWeight, nodeorder.TaintTolerationWeight, nodeorder.PodTopologySpreadWeight} {
			if random.IntN(3) == 0 {
				arguments[key] = random.IntN(4)
			}
		}
		r := opened(t, factory, arguments, draw(random))
		r.plugin.known = known
		known.dropIfMoreThan(len(r.nodes))
		for i := range 3 {
			some := r.nodes[random.IntN(len(r.nodes)):] // those that fit
			told[check(t, r, drawPod(random, fmt.Sprint("new-", i)), some)]++
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
			n := r.nodes[random.IntN(len(r.nodes))]
			n.Node = n.Node.DeepCopy()
			n.Node.Spec.Taints = append(n.Node.Spec.Taints, corev1.Taint{Key: fmt.Sprint("t", i), Effect: corev1.TaintEffectPreferNoSchedule})
		}
	}
	if told[true] < 50 || told[false] < 50 {
		t.Errorf("scores tell nodes apart for %d pods, and do not for %d: the test says little", told[true], told[false])
	}
}

// check compares the scores, and reports whether they tell nodes apart.
func check(t *testing.T, r *room, pod *corev1.Pod, nodes []*api.NodeInfo) (differ bool) {
	t.Helper()
	task := api.NewTaskInfo(pod)
	want, err := r.plugin.BatchNodeOrderFn(task, nodes, k8sframework.NewCycleState())
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.plugin.scoreNodes(task, nodes)
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("scores %v, %v; Volcano's are %v", got, err, want)
	}
	for _, points := range want {
		differ = differ || points != want[nodes[0].Name]
	}
	return differ
}

func TestNodesThatAreGoneAreForgotten(t *testing.T) {
	known := &nodeInfoCache{of: map[string]*k8sframework.NodeInfo{}}
	for i := range 100 {
		n := api.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}})
		known.dropIfMoreThan(1)
		known.describeNodes([]*api.NodeInfo{n})
	}
	if len(known.of) > 2 {
		t.Errorf("%d nodes are described, and there is one", len(known.of))
	}
}

// BenchmarkScores asks for the scores of 1,000 nodes that are alike, ours and Volcano's in turns.
func BenchmarkScores(b *testing.B) {
	var nodes []*api.NodeInfo
	for i := range 1000 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		n.Status.Allocatable = corev1.ResourceList{}
		for _, name := range []corev1.ResourceName{"cpu", "memory", "pods", "ephemeral-storage", "hugepages-1Gi", "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"} {
			n.Status.Allocatable[name] = resource.MustParse("100")
		}
		nodes = append(nodes, api.NewNodeInfo(n))
	}
	r := opened(b, informed(), nil, nodes)
	task := api.NewTaskInfo(&corev1.Pod{})
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = r.plugin.scoreNodes(task, nodes)
		}
	})
	b.Run("Volcano's", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = r.plugin.BatchNodeOrderFn(task, nodes, k8sframework.NewCycleState())
		}
	})
}
