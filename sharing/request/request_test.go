// SPDX-License-Identifier: Apache-2.0

package request_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

type amounts = map[string]int64

const (
	number  = wire.ResourceNumber
	memory  = wire.ResourceMemory
	cores   = wire.ResourceCores
	percent = wire.ResourcePercentage
)

// pod makes a pod of one app container.
func rules(names podspec.Names, factor int64) request.Rules {
	return request.Rules{Names: names, Factor: factor}
}

func pod(resources amounts) *podspec.Pod {
	return &podspec.Pod{UID: "uid-1", Containers: []podspec.Container{{Name: "main", Resources: resources}}}
}

func TestWhatOneContainerAsks(t *testing.T) {
	for name, c := range map[string]struct {
		resources amounts
		factor    int64
		defaults  request.Defaults
		want      sharing.Request
	}{
		"a number alone asks for the whole memory and no compute guarantee": {
			resources: amounts{number: 2},
			want:      sharing.Request{Count: 2, Memory: sharing.WholeMemory()},
		},
		"memory is of each device, in MiB": {
			resources: amounts{number: 2, memory: 1000},
			want:      sharing.Request{Count: 2, Memory: sharing.AbsoluteMemory(1000 * sharing.MiB)},
		},
		"the factor multiplies memory and nothing else": {
			resources: amounts{number: 2, memory: 10, cores: 30}, factor: 1024,
			want: sharing.Request{Count: 2, Memory: sharing.AbsoluteMemory(10 * sharing.GiB), Cores: 30},
		},
		"a factor that makes no sense counts as 1": {
			resources: amounts{number: 1, memory: 10}, factor: -5,
			want: sharing.Request{Count: 1, Memory: sharing.AbsoluteMemory(10 * sharing.MiB)},
		},
		"memory of 0 asks for the whole memory, as it always did": {
			resources: amounts{number: 1, memory: 0},
			want:      sharing.Request{Count: 1, Memory: sharing.WholeMemory()},
		},
		"a percentage is left for the device that is chosen": {
			resources: amounts{number: 1, percent: 50},
			want:      sharing.Request{Count: 1, Memory: sharing.PercentMemory(50)},
		},
		"a percentage beside memory of 0 is no contradiction": {
			resources: amounts{number: 1, memory: 0, percent: 50},
			want:      sharing.Request{Count: 1, Memory: sharing.PercentMemory(50)},
		},
		"cores of 100 ask for a device's compute alone": {
			resources: amounts{number: 1, cores: 100},
			want:      sharing.Request{Count: 1, Memory: sharing.WholeMemory(), Cores: 100},
		},
		"defaults fill in what is not said": {
			resources: amounts{number: 1}, factor: 2,
			defaults: request.Defaults{Memory: 100, Cores: 20},
			want:     sharing.Request{Count: 1, Memory: sharing.AbsoluteMemory(200 * sharing.MiB), Cores: 20},
		},
		"defaults do not replace what is said, 0 included": {
			resources: amounts{number: 1, memory: 0, cores: 0},
			defaults:  request.Defaults{Memory: 100, Cores: 20},
			want:      sharing.Request{Count: 1, Memory: sharing.WholeMemory()},
		},
		"default memory does not contradict a percentage": {
			resources: amounts{number: 1, percent: 10},
			defaults:  request.Defaults{Memory: 100},
			want:      sharing.Request{Count: 1, Memory: sharing.PercentMemory(10)},
		},
		"as many devices, and as much memory of each, as a node may have": {
			resources: amounts{number: 1024, memory: 16 << 10}, factor: 1 << 10,
			want: sharing.Request{Count: 1024, Memory: sharing.AbsoluteMemory(16 << 40)},
		},
		"100 percent is the whole memory": {
			resources: amounts{number: 1, percent: 100},
			want:      sharing.Request{Count: 1, Memory: sharing.PercentMemory(100)},
		},
		"other resources do not matter": {
			resources: amounts{number: 1, "nvidia.com/gpu": -7},
			want:      sharing.Request{Count: 1, Memory: sharing.WholeMemory()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Container = "main"
			got, mistakes := request.Rules{Names: podspec.DefaultNames(), Factor: c.factor, Defaults: c.defaults}.Read(pod(c.resources))
			if len(mistakes) > 0 {
				t.Fatal(mistakes)
			}
			if len(got.Requests) != 1 || got.Requests[0] != c.want || got.Owner != "uid-1" {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestADefaultThatNoDeviceHasCountsAsNone(t *testing.T) {
	for memory, want := range map[int64]sharing.Memory{16: sharing.AbsoluteMemory(16 << 40), 17: sharing.WholeMemory()} {
		got, mistakes := request.Rules{Names: podspec.DefaultNames(), Factor: 1 << 20, Defaults: request.Defaults{Memory: memory}}.Read(pod(amounts{number: 1}))
		if len(mistakes) > 0 || got.Requests[0].Memory != want {
			t.Errorf("%d TiB: %+v, %v", memory, got.Requests, mistakes)
		}
	}
}

func TestWhatAsksForNothing(t *testing.T) {
	for name, resources := range map[string]amounts{
		"no resources":               nil,
		"another resource":           {"nvidia.com/gpu": 1},
		"a number of 0":              {number: 0},
		"a number and amounts of 0":  {number: 0, memory: 0, cores: 0},
		"memory of 0 and no number":  {memory: 0},
		"compute of 0 and no number": {cores: 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod(resources)
			got, mistakes := rules(podspec.DefaultNames(), 1).Read(p)
			if len(mistakes) > 0 || len(got.Requests) > 0 || podspec.Asks(p, podspec.DefaultNames()) {
				t.Errorf("got %+v, %v", got, mistakes)
			}
		})
	}
}

func TestAPodAsksIfAnyContainerNamesAnyOfTheResources(t *testing.T) {
	for _, resource := range []string{number, memory, cores, percent} {
		p := pod(nil)
		p.Containers = append(p.Containers, podspec.Container{Name: "second", Resources: amounts{resource: 1}})
		if !podspec.Asks(p, podspec.DefaultNames()) {
			t.Errorf("%s is not seen", resource)
		}
		if n := testing.AllocsPerRun(10, func() { podspec.Asks(p, podspec.DefaultNames()) }); n != 0 {
			t.Errorf("%s: %v allocations", resource, n)
		}
	}
}

func TestMistakesInAmounts(t *testing.T) {
	const main = "spec.containers[0] (main) resources.limits["
	for name, c := range map[string]struct {
		resources amounts
		factor    int64
		want      []string
	}{
		"a negative number": {
			resources: amounts{number: -1},
			want:      []string{main + number + "]: -1 is negative"},
		},
		"everything negative": {
			resources: amounts{number: -1, memory: -2, cores: -3, percent: -4},
			want: []string{
				main + number + "]: -1 is negative", main + memory + "]: -2 is negative",
				main + percent + "]: -4 is negative", main + cores + "]: -3 is negative",
			},
		},
		"more devices than any node has": {
			resources: amounts{number: 100000},
			want:      []string{main + number + "]: 100000 is more devices than any node has"},
		},
		"more memory than any device has": {
			resources: amounts{number: 1, memory: 1 << 40},
			want:      []string{main + memory + "]: 1099511627776 is more than any device has: the unit is 1MiB"},
		},
		"more memory than any device has with the factor": {
			resources: amounts{number: 1, memory: 20 << 10}, factor: 1 << 10,
			want: []string{main + memory + "]: 20480 is more than any device has: the unit is 1GiB"},
		},
		"memory that overflows with the factor": {
			resources: amounts{number: 1, memory: 1 << 62}, factor: 1 << 20,
			want: []string{main + memory + "]: 4611686018427387904 is more than any device has: the unit is 1024GiB"},
		},
		"a percentage of 0": {
			resources: amounts{number: 1, percent: 0},
			want:      []string{main + percent + "]: 0 is outside 1 to 100"},
		},
		"a percentage of 101": {
			resources: amounts{number: 1, percent: 101},
			want:      []string{main + percent + "]: 101 is outside 1 to 100"},
		},
		"cores of two devices in one number": {
			resources: amounts{number: 2, cores: 200},
			want:      []string{main + cores + "]: 200 is more than 100: it is percent of one device, and each of the container's devices gives that much"},
		},
		"memory and percentage": {
			resources: amounts{number: 1, memory: 5, percent: 5},
			want:      []string{main + percent + "]: given together with volcano.sh/vgpu-memory: give one of them"},
		},
		"memory without a number says the line to add": {
			resources: amounts{memory: 5},
			want:      []string{main + memory + "]: asked without volcano.sh/vgpu-number: add the line volcano.sh/vgpu-number: 1 to the limits"},
		},
		"cores without a number says the line to add": {
			resources: amounts{cores: 5},
			want:      []string{main + cores + "]: asked without volcano.sh/vgpu-number: add the line volcano.sh/vgpu-number: 1 to the limits"},
		},
		"all amounts without a number are one mistake": {
			resources: amounts{memory: 5, cores: 5},
			want:      []string{main + memory + "]: asked without volcano.sh/vgpu-number: add the line volcano.sh/vgpu-number: 1 to the limits"},
		},
		"memory of no device": {
			resources: amounts{number: 0, memory: 5},
			want:      []string{main + number + "]: 0 devices, but volcano.sh/vgpu-memory is asked of each: write volcano.sh/vgpu-number: 1, or remove volcano.sh/vgpu-memory"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, mistakes := rules(podspec.DefaultNames(), c.factor).Read(pod(c.resources))
			compare(t, mistakes, c.want)
			if !reflect.DeepEqual(got, sharing.PodRequest{}) {
				t.Errorf("half-read: %+v", got)
			}
		})
	}
}

func TestSoManyContainersOfAPodMayAskForDevices(t *testing.T) {
	for n, want := range map[int][]string{64: nil, 65: {"spec: 65 containers ask for devices, want at most 64"}} {
		one := pod(amounts{number: 1})
		p := pod(amounts{number: 1})
		for range n - 1 {
			p.Containers = append(p.Containers, one.Containers[0])
		}
		_, mistakes := rules(podspec.DefaultNames(), 1).Read(p)
		compare(t, mistakes, want)
	}
}

func compare(t *testing.T, mistakes []request.Mistake, want []string) {
	t.Helper()
	var got []string
	for _, m := range mistakes {
		got = append(got, m.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestEveryMistakeOfAPodIsReportedAtOnceWithItsPath(t *testing.T) {
	p := &podspec.Pod{
		Annotations: map[string]string{wire.UserMode: "foo,mig,mig", wire.UserPolicy: "best"},
		Containers: []podspec.Container{
			{Name: "load", Kind: sharing.Init, Resources: amounts{number: -1}},
			{Name: "proxy", Kind: sharing.Sidecar, Resources: amounts{memory: 5}},
			{Name: "plain"},
			{Name: "main", Resources: amounts{number: 1, cores: 101, percent: 0}},
		},
	}
	_, mistakes := rules(podspec.DefaultNames(), 1).Read(p)
	compare(t, mistakes, []string{
		"spec.initContainers[0] (load) resources.limits[volcano.sh/vgpu-number]: -1 is negative",
		"spec.initContainers[1] (proxy) resources.limits[volcano.sh/vgpu-memory]: asked without volcano.sh/vgpu-number: add the line volcano.sh/vgpu-number: 1 to the limits",
		"spec.containers[1] (main) resources.limits[volcano.sh/vgpu-memory-percentage]: 0 is outside 1 to 100",
		"spec.containers[1] (main) resources.limits[volcano.sh/vgpu-cores]: 101 is more than 100: it is percent of one device, and each of the container's devices gives that much",
		`metadata.annotations[volcano.sh/vgpu-mode]: unknown mode "foo": want one of mig, hami-core, mps, time-slicing`,
		"metadata.annotations[volcano.sh/vgpu-mode]: mig is there twice",
		`metadata.annotations[volcano.sh/vgpu-policy]: unknown policy "best": want one of ` + strings.Join(policy.Names(), ", "),
	})
}

func TestInitContainersAndSidecarsAreReadInOrder(t *testing.T) {
	p := &podspec.Pod{Containers: []podspec.Container{
		{Name: "a", Kind: sharing.Init, Resources: amounts{number: 1}},
		{Name: "b", Kind: sharing.Sidecar, Resources: amounts{number: 2}},
		{Name: "c"},
		{Name: "d", Resources: amounts{number: 3}},
	}}
	got, mistakes := rules(podspec.DefaultNames(), 1).Read(p)
	if len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	want := []sharing.Request{
		{Container: "a", Kind: sharing.Init, Count: 1},
		{Container: "b", Kind: sharing.Sidecar, Count: 2},
		{Container: "d", Count: 3},
	}
	if !slices.Equal(got.Requests, want) {
		t.Errorf("got %+v", got.Requests)
	}
}

func TestRenamedAndMissingResources(t *testing.T) {
	names := podspec.Names{Number: "example.com/gpu", Memory: "example.com/mem"}
	got, mistakes := rules(names, 1).Read(pod(amounts{"example.com/gpu": 1, "example.com/mem": 7, cores: 500, "": 9}))
	if len(mistakes) > 0 || len(got.Requests) != 1 || got.Requests[0].Cores != 0 {
		t.Errorf("got %+v, %v", got, mistakes)
	}
	_, mistakes = rules(names, 1).Read(pod(amounts{"example.com/mem": 7}))
	if len(mistakes) != 1 || !strings.Contains(mistakes[0].Message, "example.com/gpu: 1") {
		t.Errorf("got %v", mistakes)
	}
	if podspec.Asks(pod(amounts{number: 1}), names) {
		t.Error("a renamed resource is still seen by its old name")
	}
}

func TestReadingChangesNothing(t *testing.T) {
	p := pod(amounts{number: 1, memory: -1})
	p.Annotations = map[string]string{wire.UserUseIDs: "GPU-b, GPU-a"}
	resources, annotations := maps.Clone(p.Containers[0].Resources), maps.Clone(p.Annotations)
	rules(podspec.DefaultNames(), 1).Read(p)
	if !maps.Equal(resources, p.Containers[0].Resources) || !maps.Equal(annotations, p.Annotations) {
		t.Error("the pod was changed")
	}
}
