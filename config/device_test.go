// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"deviceshare/config"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/request"
)

// defaultText is the default configuration as it is written.
func defaultText(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheDefaultsAreFreeOfProblems(t *testing.T) {
	d, problems := config.LoadDevice([]byte(defaultText(t)))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if !reflect.DeepEqual(d, config.DefaultDevice()) {
		t.Error("loading the defaults gives something else")
	}
	if d.Names() != podspec.DefaultNames() {
		t.Errorf("got names %+v", d.Names())
	}
	if d.SplitCount != 10 || d.MemoryScaling != 1 || d.CoreScaling != 1 || d.MemoryFactor != 1 || d.DefaultCount != 1 {
		t.Errorf("got %+v", d)
	}
}

func TestEveryFieldArrivesInTheStruct(t *testing.T) {
	d, problems := config.LoadDevice([]byte(`
nvidia:
  resourceCountName: example.com/count
  resourceMemoryName: example.com/memory
  resourceCoreName: example.com/core
  resourceMemoryPercentageName: example.com/percent
  resourcePriorityName: example.com/priority
  overwriteEnv: true
  defaultMemory: 100
  defaultCores: 20
  defaultGPUNum: 2
  deviceSplitCount: 3
  deviceMemoryScaling: 1.5
  deviceCoreScaling: 2
  disableCoreLimit: true
  idleCompute: leave
  contextMemory: free
  deepbind: keep
  standIn: true
  gpuMemoryFactor: 10
  passDeviceSpecs: true
  migPolicy: best-fit
  knownMigGeometries:
    - models: [X1, X2]
      migPolicy: first-match
      allowedGeometries:
        - group: g
          geometries:
            - {name: 1g.24gb+me.all, memory: 10, count: 2}
vnpus: [{anything: 1}]
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := config.Device{
		CountName: "example.com/count", MemoryName: "example.com/memory", CoreName: "example.com/core",
		PercentageName: "example.com/percent", PriorityName: "example.com/priority",
		OverwriteEnv: true, DefaultMemory: 100, DefaultCores: 20, DefaultCount: 2, SplitCount: 3,
		MemoryScaling: 1.5, CoreScaling: 2, DisableCoreLimit: true, LeaveIdle: true, ContextFree: true, KeepDeepbind: true, StandIn: true,
		MemoryFactor: 10, PassDeviceSpecs: true,
		MIGPolicy: sharing.BestFit,
		Known: []config.ModelGeometries{{
			Models: []string{"X1", "X2"},
			Policy: new(sharing.PartitionPolicy),
			Geometries: []sharing.Geometry{{
				Name:    "g",
				Entries: []sharing.GeometryEntry{{Profile: "1g.24gb+me.all", Memory: 10 * sharing.MiB, Count: 2}},
			}},
		}},
	}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("got  %+v\nwant %+v", d, want)
	}
	// A field added to the struct must be added here: each is set to something.
	v := reflect.ValueOf(d)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s is not alive", v.Type().Field(i).Name)
		}
	}
	if d.Defaults() != (request.Defaults{Memory: 100, Cores: 20}) {
		t.Errorf("got %+v", d.Defaults())
	}
}

func TestFieldsThatAreNotThereKeepTheirDefaults(t *testing.T) {
	d, problems := config.LoadDevice([]byte("nvidia: {deviceSplitCount: 3}"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := config.DefaultDevice()
	want.SplitCount = 3
	if !reflect.DeepEqual(d, want) {
		t.Errorf("got %+v", d)
	}
	d, problems = config.LoadDevice([]byte("nvidia: {knownMigGeometries: []}"))
	if len(problems) > 0 || len(d.Known) != 0 {
		t.Errorf("an empty list does not replace the default list: %+v, %v", d.Known, problems)
	}
}

func TestGeometriesOfModels(t *testing.T) {
	d := config.DefaultDevice()
	for name, c := range map[string]struct{ model, first string }{
		"an A30":                              {"NVIDIA A30", "1g.6gb"},
		"an A100 40 GB":                       {"NVIDIA A100-SXM4-40GB", "1g.5gb"},
		"an A100 80 GB":                       {"NVIDIA A100-SXM4-80GB", "1g.10gb"},
		"an A100 80 GB on PCIe":               {"NVIDIA A100 80GB PCIe", "1g.10gb"},
		"an H100 80 GB":                       {"NVIDIA H100 80GB HBM3", "1g.10gb"},
		"an H200":                             {"NVIDIA H200", "1g.18gb"},
		"an H200 NVL":                         {"NVIDIA H200 NVL", "1g.18gb"},
		"a B200":                              {"NVIDIA B200", "1g.23gb"},
		"the type text of legacy annotations": {"NVIDIA-NVIDIA A100-SXM4-80GB", "1g.10gb"},
		"a GH200, which is not an H200":       {"NVIDIA GH200 480GB", ""},
		"a GB200, which is not a B200":        {"NVIDIA GB200", ""},
		"an H100 with 94 GB":                  {"NVIDIA H100 NVL", ""},
		"a T4":                                {"Tesla T4", ""},
		"a name in other letters":             {"nvidia a30", "1g.6gb"},
		"an A30X, which is no A30":            {"NVIDIA A30X", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := d.Geometries(c.model)
			if c.first == "" {
				if g != nil {
					t.Errorf("got %+v", g)
				}
				return
			}
			if len(g) == 0 || g[0].Entries[0].Profile != c.first {
				t.Errorf("got %+v", g)
			}
		})
	}
}

func TestTheFirstEntryThatMatchesIsUsed(t *testing.T) {
	d, problems := config.LoadDevice([]byte(`
nvidia:
  knownMigGeometries:
    - {models: [A100], allowedGeometries: [{group: first, geometries: [{name: 1g.5gb, memory: 1, count: 1}]}]}
    - {models: [A100-SXM4], allowedGeometries: [{group: second, geometries: [{name: 1g.5gb, memory: 1, count: 1}]}]}
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if g := d.Geometries("NVIDIA A100-SXM4-40GB"); g[0].Name != "first" {
		t.Errorf("got %+v", g)
	}
}

func TestProblemsOfTheDeviceConfig(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing":          {"", []string{"is empty"}},
		"only a comment":   {"# nothing yet", []string{"is empty"}},
		"a list":           {"[1]", []string{"is a list, want a map"}},
		"no nvidia":        {"vnpus: []", []string{"nvidia: is missing"}},
		"nvidia is empty":  {"nvidia:", []string{"nvidia: has no value: give one or remove the field"}},
		"nvidia is a text": {"nvidia: yes please", []string{`nvidia: is the text "yes please", want a map`}},
		"an unknown section": {
			"nvidia: {}\namd: {}", []string{"amd: is not known: want one of vnpus, nvidia"},
		},
		"HAMi's, which has fields of its own": {
			"nvidia: {resourceCountName: nvidia.com/gpu, libCudaLogLevel: 1}\nhygon: {resourceCountName: hygon.com/dcunum}\nvnpus: []", []string{
				"is HAMi's (it has hygon), of ConfigMap hami-scheduler-device. Write ours, volcano-vgpu-device-config, which is also the default of deviceshare.KnownGeometriesCMName",
			},
		},
		"a field in other letters": {
			"nvidia: {devicesplitcount: 3}", []string{"nvidia.devicesplitcount: is not known: write deviceSplitCount"},
		},
		"a field without a value": {
			"nvidia: {deviceSplitCount: }", []string{"nvidia.deviceSplitCount: has no value: give one or remove the field"},
		},
		"words that are none of two": {
			"nvidia: {idleCompute: force, contextMemory: sometimes, deepbind: true, standIn: x}", []string{
				`nvidia.idleCompute: "force" is not known: want borrow or leave`,
				`nvidia.contextMemory: "sometimes" is not known: want charge or free`,
				"nvidia.deepbind: is true, want a text",
				`nvidia.standIn: is the text "x", want true or false`,
			},
		},
		"wrong types, all at once": {
			"nvidia: {deviceSplitCount: many, overwriteEnv: 1, resourceCountName: 5, deviceCoreScaling: true, knownMigGeometries: {}}",
			[]string{
				"nvidia.resourceCountName: is the number 5, want a text",
				"nvidia.overwriteEnv: is the number 1, want true or false",
				`nvidia.deviceSplitCount: is the text "many", want a whole number`,
				"nvidia.deviceCoreScaling: is true, want a number",
				"nvidia.knownMigGeometries: is a map, want a list",
			},
		},
		"values out of range, all at once": {
			"nvidia: {deviceSplitCount: 0, deviceMemoryScaling: 0, deviceCoreScaling: 1e9, gpuMemoryFactor: 0, defaultCores: 101, defaultMemory: -1, defaultGPUNum: 1.5}",
			[]string{
				"nvidia.defaultMemory: -1 is outside 0 to 16777216",
				"nvidia.defaultCores: 101 is outside 0 to 100",
				"nvidia.defaultGPUNum: 1.5 is not a whole number from 1 to 1024",
				"nvidia.deviceSplitCount: 0 is outside 1 to 1000",
				"nvidia.deviceMemoryScaling: 0 is outside 0 to 100",
				"nvidia.deviceCoreScaling: 1000000000 is outside 0 to 100",
				"nvidia.gpuMemoryFactor: 0 is outside 1 to 16777216",
			},
		},
		"resources with one name": {
			"nvidia: {resourceCountName: a.b/c, resourceMemoryName: a.b/c}",
			[]string{"nvidia.resourceMemoryName: a.b/c is the name of resourceCountName too"},
		},
		"a resource without a domain": {
			"nvidia: {resourceCountName: gpu, resourceMemoryName: \"\"}",
			[]string{
				`nvidia.resourceCountName: "gpu" is not a resource name: want domain/name`,
				`nvidia.resourceMemoryName: "" is not a resource name: want domain/name`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, problems := config.LoadDevice([]byte(c.text))
			compare(t, problems, c.want)
			if !reflect.DeepEqual(d, config.Device{}) {
				t.Errorf("half-read: %+v", d)
			}
		})
	}
}

func TestProblemsOfGeometries(t *testing.T) {
	d, problems := config.LoadDevice([]byte(`
nvidia:
  knownMigGeometries:
    - models: []
      allowedGeometries: []
    - models: [A100, ""]
      extra: 1
      allowedGeometries:
        - group: group-1
          geometries:
            - {name: 1g.5gb, memory: 0, count: 0}
            - {name: 5gb, memory: 1, count: 1}
            - {name: 1g.5gb, memory: 1}
        - group: twice
          geometries: [{name: 1g.5gb, memory: 1, count: 64}, {name: 1g.5gb, memory: 1, count: 1}]
        - group: twice
          geometries: []
        - {}
        - nonsense
        - {group: free, geometries: [{name: 1g.5gb, memory: 1, count: 1}]}
    - {}
`))
	const k = "nvidia.knownMigGeometries"
	compare(t, problems, []string{
		k + "[0].models: is an empty list: the entry never matches",
		k + "[1].models[1]: has no letter or digit: want words of a product name, such as A100-SXM4",
		k + `[1].allowedGeometries[0].group: "group-1" is not a group name: it is part of the id uuid[group-position], so it must not be empty or hold '-', '[', ']', a space or a separator`,
		k + "[1].allowedGeometries[0].geometries[0].memory: 0 is outside 1 to 16777216",
		k + "[1].allowedGeometries[0].geometries[0].count: 0 is outside 1 to 64",
		k + `[1].allowedGeometries[0].geometries[1].name: "5gb" is not a profile name: want the form 1g.10gb`,
		k + "[1].allowedGeometries[0].geometries[2].count: is missing",
		k + "[1].allowedGeometries[1].geometries[1].count: the group has more than 64 partitions",
		k + "[1].allowedGeometries[2].group: twice is there twice for these models",
		k + "[1].allowedGeometries[2].geometries: is an empty list",
		k + "[1].allowedGeometries[3].group: is missing",
		k + "[1].allowedGeometries[3].geometries: is missing",
		k + `[1].allowedGeometries[4]: is the text "nonsense", want a map`,
		k + `[1].allowedGeometries[5].group: "free" is the name of what is there where no geometry is listed: take another`,
		k + "[1].extra: is not known: want one of models, allowedGeometries, migPolicy",
		k + "[2].models: is missing",
		k + "[2].allowedGeometries: is missing",
	})
	if !reflect.DeepEqual(d, config.Device{}) {
		t.Errorf("half-read: %+v", d)
	}
}

func TestAKeyThatIsThereTwiceIsAProblemBesideTheOthers(t *testing.T) {
	_, problems := config.LoadDevice([]byte("nvidia:\n  deviceSplitCount: 3\n  deviceSplitCount: 4\n  overwriteEnv: 1\n"))
	if len(problems) != 2 || problems[0].Path != "line 3" || !strings.Contains(problems[0].Message, "already") ||
		problems[1].Path != "nvidia.overwriteEnv" {
		t.Errorf("got %v", problems)
	}
}

func TestTextThatIsNoYAMLIsOneProblemWithItsLine(t *testing.T) {
	_, problems := config.LoadDevice([]byte("nvidia:\n  a: [1\n  b: 2\n"))
	if len(problems) != 1 || !strings.HasPrefix(problems[0].Path, "line ") {
		t.Errorf("got %v", problems)
	}
	_, problems = config.LoadDevice(make([]byte, 2<<20))
	if len(problems) != 1 || !strings.Contains(problems[0].Message, "more than") {
		t.Errorf("got %v", problems)
	}
}

func TestTheHashIsOfTheContentAndNotOfTheText(t *testing.T) {
	a, _ := config.LoadDevice([]byte("nvidia: {deviceSplitCount: 3, gpuMemoryFactor: 2}"))
	b, _ := config.LoadDevice([]byte("# reordered\nnvidia:\n  gpuMemoryFactor: 2\n  deviceSplitCount: 3\n"))
	c, _ := config.LoadDevice([]byte("nvidia: {deviceSplitCount: 4, gpuMemoryFactor: 2}"))
	d, _ := config.LoadDevice([]byte("nvidia: {knownMigGeometries: []}"))
	if a.Hash() != b.Hash() || a.Hash() == c.Hash() || len(a.Hash()) != 16 {
		t.Errorf("got %s, %s, %s", a.Hash(), b.Hash(), c.Hash())
	}
	if a.GeometryHash() != c.GeometryHash() || a.GeometryHash() == d.GeometryHash() {
		t.Errorf("got %s, %s, %s", a.GeometryHash(), c.GeometryHash(), d.GeometryHash())
	}
}

func compare(t *testing.T, problems []config.Problem, want []string) {
	t.Helper()
	var got []string
	for _, p := range problems {
		got = append(got, p.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestMoreGroupsThanAnyCardHasAreRefused(t *testing.T) {
	for n, want := range map[int][]string{32: nil, 33: {"nvidia.knownMigGeometries[0].allowedGeometries: has 33 groups, want at most 32: every placement looks at all of them"}} {
		text := "nvidia:\n  knownMigGeometries:\n    - models: [A100]\n      allowedGeometries:\n"
		for i := range n {
			text += fmt.Sprintf("        - {group: g%d, geometries: [{name: 1g.5gb, memory: 1, count: 1}]}\n", i)
		}
		_, problems := config.LoadDevice([]byte(text))
		compare(t, problems, want)
	}
}
