// SPDX-License-Identifier: Apache-2.0

package offline_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// card is a kind of GPU: two of them are on a node of their own.
type card struct{ node, model, mode string }

func (c card) id(i int) string { return fmt.Sprintf("GPU-%s-%d", c.node, i) }

// cards are a node for each model that drivers name, and some in other modes.
func cards() []card {
	models := []string{"Tesla T4", "Tesla V100-SXM2-16GB", "NVIDIA A10", "NVIDIA A10G", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", "NVIDIA A100X",
		"NVIDIA A30", "NVIDIA L4", "NVIDIA L40", "NVIDIA L40S", "NVIDIA H20", "NVIDIA H200", "NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA B200",
		"NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL", "NVIDIA H800", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090 D", "NVIDIA RTX A6000", "NVIDIA RTX 6000 Ada Generation"}
	var out []card
	for i, model := range models {
		out = append(out, card{fmt.Sprintf("n%d", i), model, "hami-core"})
	}
	for i, c := range []card{{"", "NVIDIA A30", "mig"}, {"", "NVIDIA H200", "mig"}, {"", "NVIDIA L40S", "mps"}, {"", "NVIDIA A10", "mps"}, {"", "Tesla T4", "time-slicing"}, {"", "NVIDIA H20", "time-slicing"}} {
		c.node = fmt.Sprintf("m%d", i)
		out = append(out, c)
	}
	return out
}

// names are ways of writing a name of a model, with all models above that a person means by it.
func names() map[string][]string {
	a100 := []string{"NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"}
	one := func(m string) []string { return []string{m} }
	return map[string][]string{
		"T4": one("Tesla T4"), "Tesla T4": one("Tesla T4"), "V100": one("Tesla V100-SXM2-16GB"), "A10": one("NVIDIA A10"), "NVIDIA A10": one("NVIDIA A10"), "A10G": one("NVIDIA A10G"),
		"A100": a100, "NVIDIA-A100": a100, "A100-80GB": a100[1:], "A100-SXM4": a100[:2], "A100-SXM": a100[:2], "A100-SXM4-80GB": a100[1:2], "A100 80GB PCIe": a100[2:], "A100-PCIE": a100[2:],
		"A100X": one("NVIDIA A100X"), "A30": one("NVIDIA A30"), "L4": one("NVIDIA L4"), "L40": one("NVIDIA L40"), "L40S": one("NVIDIA L40S"), "H20": one("NVIDIA H20"), "H200": one("NVIDIA H200"),
		"GH200": one("NVIDIA GH200 480GB"), "GB200": one("NVIDIA GB200"), "B200": one("NVIDIA B200"), "H100": {"NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL"}, "H100 80GB HBM3": one("NVIDIA H100 80GB HBM3"),
		"H100 NVL": one("NVIDIA H100 NVL"), "H800": one("NVIDIA H800"), "RTX 4090": one("NVIDIA GeForce RTX 4090"), "RTX4090": one("NVIDIA GeForce RTX 4090"), "4090": one("NVIDIA GeForce RTX 4090"),
		"RTX 4090 D": one("NVIDIA GeForce RTX 4090 D"), "A6000": one("NVIDIA RTX A6000"), "RTX 6000": nil, "RTX 6000 Ada": one("NVIDIA RTX 6000 Ada Generation"), "A1": nil, "H2": nil, "L": nil, "GB": nil, "V10": nil,
	}
}

// wish is a pod with what its author means.
type wish struct {
	pod     *corev1.Pod
	refused map[string]bool // the fields that nobody can serve
	// What is asked of each device.
	number, mib, percent, cores int
	use, not                    []string // models; use is nil if every one will do
	byModel                     bool
	modes                       []string
	useIDs, notIDs              []string
}

func (w *wish) String() string {
	return fmt.Sprintf("pod %s %v %v %v", w.pod.Name, w.pod.Annotations, w.pod.Labels, w.pod.Spec.Containers[0].Resources.Limits)
}

func (w *wish) bytes() int64 {
	if w.percent > 0 {
		return 15360 * int64(w.percent) / 100 << 20
	}
	return int64(w.mib) << 20
}

func (w *wish) accepts(c card, id string) bool {
	return (!w.byModel || slices.Contains(w.use, c.model)) && !slices.Contains(w.not, c.model) &&
		(len(w.modes) == 0 || slices.Contains(w.modes, c.mode)) &&
		(len(w.useIDs) == 0 || slices.Contains(w.useIDs, id)) && !slices.Contains(w.notIDs, id)
}

// nodes are those that can serve the pod when they are empty, which they are but for a few others.
// In mode mps a container has one device.
func (w *wish) nodes() []string {
	var out []string
	for _, c := range cards() {
		fit := 0
		for i := range 2 {
			if w.accepts(c, c.id(i)) {
				fit++
			}
		}
		if fit >= w.number && (c.mode != "mps" || w.number == 1) {
			out = append(out, c.node)
		}
	}
	return out
}

func (w *wish) count(counts map[string]int) {
	if w.byModel || len(w.not) > 0 {
		counts["narrowed by model"]++
	}
	if len(w.modes) > 0 {
		counts["narrowed by mode"]++
	}
	if len(w.useIDs)+len(w.notIDs) > 0 {
		counts["narrowed by id"]++
	}
}

func amounts(of map[string]string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, amount := range of {
		out[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return out
}

func randomWish(r *rand.Rand, name string) *wish {
	w := &wish{refused: map[string]bool{}, number: 1 + r.IntN(2), cores: r.IntN(6)}
	limits := map[string]string{"volcano.sh/vgpu-number": strconv.Itoa(w.number), "volcano.sh/vgpu-cores": strconv.Itoa(w.cores)}
	if r.IntN(4) == 0 {
		w.percent = 1 + r.IntN(4)
		limits["volcano.sh/vgpu-memory-percentage"] = strconv.Itoa(w.percent)
	} else {
		w.mib = 100 + r.IntN(500)
		limits["volcano.sh/vgpu-memory"] = strconv.Itoa(w.mib)
	}
	if r.IntN(5) == 0 { // the webhook adds it
		delete(limits, "volcano.sh/vgpu-number")
		w.number = 1
	}
	if r.IntN(5) == 0 {
		w.disturbAmounts(r, limits)
	}
	user := int64(1000)
	w.pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team", Annotations: map[string]string{}, Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{
			SchedulerName:   []string{"volcano", "default-scheduler", ""}[r.IntN(3)],
			SecurityContext: &corev1.PodSecurityContext{RunAsUser: &user},
			Containers:      []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: amounts(limits), Requests: amounts(limits)}}},
		},
	}
	for range r.IntN(4) {
		w.annotate(r)
	}
	return w
}

// disturbAmounts changes a resource for the worse, or adds one of a stranger.
func (w *wish) disturbAmounts(r *rand.Rand, limits map[string]string) {
	refuse := func(name, amount string) {
		limits[name] = amount
		w.refused["spec.containers[0] (main) resources.limits["+name+"]"] = true
	}
	strange := []string{"volcano.sh/vgpu-mem", "volcano.sh/vgpu", "volcano.sh/vgpu-memory.a100", "volcano.sh/VGPU-number", "volcano.sh/vgpu-core", "volcano.sh/gpu-memory",
		"volcano.sh/gpu-number", "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage", "nvidia.com/priority", "hami.io/gpumem"}
	switch r.IntN(8) {
	case 0:
		limits[strange[r.IntN(len(strange))]] = "0" // templates write it for none
	case 1:
		refuse("volcano.sh/vgpu-cores", strconv.Itoa(101+r.IntN(900)))
	case 2:
		if w.percent == 0 {
			refuse("volcano.sh/vgpu-memory-percentage", strconv.Itoa(1+r.IntN(100)))
		}
	default:
		refuse(strange[r.IntN(len(strange))], strconv.Itoa(1+r.IntN(4000)))
	}
}

// annotate adds an annotation, or a label that should have been one.
func (w *wish) annotate(r *rand.Rand) {
	switch r.IntN(10) {
	case 0, 1, 2:
		w.nameModels(r)
	case 3:
		w.nameModes(r)
	case 4:
		w.nameIDs(r)
	case 5, 6:
		w.writeUnread(r)
	case 7:
		w.misspell(r)
	case 8:
		key := ours()[r.IntN(len(ours()))]
		w.pod.Labels[key] = "x"
		w.refused["metadata.labels["+key+"]"] = true
	case 9: // others'
		w.pod.Annotations[[]string{"example.com/vgpu-mode", "nvidia.com/gpu.deploy.client", "hami.io/vgpu-node", "volcano.sh/job-name", "volcano.sh/queue-name"}[r.IntN(5)]] = "mig"
	}
}

func (w *wish) nameModels(r *rand.Rand) {
	known := names()
	var items, models []string
	for range 1 + r.IntN(3) {
		item := pick(r, known)
		if slices.Contains(items, item) {
			continue
		}
		items, models = append(items, item), append(models, known[item]...)
	}
	for i := range items {
		items[i] = written(r, items[i])
	}
	if text := strings.Join(items, ","); r.IntN(3) > 0 {
		w.pod.Annotations["nvidia.com/use-gputype"] = text
		w.use, w.byModel = models, true
	} else {
		w.pod.Annotations["nvidia.com/nouse-gputype"] = text
		w.not = models
	}
}

// written writes a name in another case and with other separators.
func written(r *rand.Rand, name string) string {
	switch r.IntN(4) {
	case 0:
		name = strings.ToLower(name)
	case 1:
		name = strings.ReplaceAll(name, " ", "-")
	case 2:
		name = " " + strings.ReplaceAll(name, "-", "_")
	}
	return name
}

func (w *wish) nameModes(r *rand.Rand) {
	const field = "metadata.annotations[volcano.sh/vgpu-mode]"
	modes := []string{"mig", "hami-core", "mps", "time-slicing"}
	r.Shuffle(len(modes), func(i, j int) { modes[i], modes[j] = modes[j], modes[i] })
	w.modes = modes[:1+r.IntN(3)]
	text := strings.Join(w.modes, ",")
	if delete(w.refused, field); r.IntN(5) == 0 {
		text = []string{"MIG", "mig, mps", "", "mig,mig", "hami", "mig;mps"}[r.IntN(6)]
		w.refused[field] = true
	}
	w.pod.Annotations["volcano.sh/vgpu-mode"] = text
}

func (w *wish) nameIDs(r *rand.Rand) {
	var ids []string
	for range 1 + r.IntN(4) {
		c := cards()[r.IntN(len(cards()))]
		ids = append(ids, c.id(0), c.id(1))
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if r.IntN(2) == 0 {
		w.useIDs, w.pod.Annotations["volcano.sh/vgpu-use-gpuuuid"] = ids, strings.Join(ids, ",")
	} else {
		w.notIDs, w.pod.Annotations["volcano.sh/vgpu-nouse-gpuuuid"] = ids, strings.Join(ids, " , ")
	}
	delete(w.refused, "metadata.annotations[volcano.sh/vgpu-nouse-gpuuuid]")
	if slices.ContainsFunc(w.useIDs, func(id string) bool { return slices.Contains(w.notIDs, id) }) {
		w.refused["metadata.annotations[volcano.sh/vgpu-nouse-gpuuuid]"] = true
	}
}

// writeUnread adds an annotation that means something of devices and is read by nobody here.
func (w *wish) writeUnread(r *rand.Rand) {
	unread := []string{"volcano.sh/vgpu-memory", "volcano.sh/vgpu-number", "volcano.sh/vgpu-cores", "volcano.sh/vgpu-memory-percentage", "volcano.sh/gpu-memory", "nvidia.com/gpumem",
		"nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid", "nvidia.com/vgpu-mode", "nvidia.com/numa-bind", "hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy",
		"hami.io/device-scoring-weights", "volcano.sh/use-gputype", "nvidia.com/use-gpu-type", "volcano.sh/vgpu-withdraw", "volcano.sh/vgpu-config", "volcano.sh/vgpu"}
	key := unread[r.IntN(len(unread))]
	w.pod.Annotations[key] = []string{"4000", "mig", "GPU-1", ""}[r.IntN(4)]
	w.refused["metadata.annotations["+key+"]"] = true
}

func ours() []string {
	return []string{"volcano.sh/vgpu-mode", "nvidia.com/use-gputype", "nvidia.com/nouse-gputype", "volcano.sh/vgpu-use-gpuuuid", "volcano.sh/vgpu-nouse-gpuuuid",
		"volcano.sh/vgpu-podgroup-policy", "volcano.sh/vgpu-policy", "volcano.sh/vgpu-split", "volcano.sh/vgpu-numa"}
}

// misspell writes one of our annotations with a few letters changed, all of them after "vgpu-".
func (w *wish) misspell(r *rand.Rand) {
	const prefix = "volcano.sh/vgpu-"
	key := ours()[3+r.IntN(6)]
	rest := []byte(strings.TrimPrefix(key, prefix))
	for range 1 + r.IntN(2) {
		switch i := r.IntN(len(rest)); r.IntN(4) {
		case 0:
			rest[i] = "xqzXQZ"[r.IntN(6)]
		case 1:
			rest = slices.Insert(rest, i, 'q')
		case 2:
			rest = append(rest, 's')
		case 3:
			rest[i] = strings.ToUpper(string(rest[i]))[0]
		}
	}
	written := prefix + string(rest)
	if written == key { // an upper-case dash
		return
	}
	w.pod.Annotations[written] = "mig"
	w.refused["metadata.annotations["+written+"]"] = true
}

// pick chooses a key, the same for the same random numbers.
func pick(r *rand.Rand, of map[string][]string) string {
	keys := make([]string, 0, len(of))
	for k := range of {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys[r.IntN(len(keys))]
}
