// SPDX-License-Identifier: Apache-2.0

package rivals

import (
	"slices"
	"strings"
	"testing"
)

const second = 1_000_000

func own() Object { return Object{"deviceshare-system", "deviceshare-scheduler"} }

// deployment is a Deployment with one replica, made at a time, whose container has these words.
func deployment(namespace, name string, created int64, image string, words ...string) Deployment {
	return Deployment{Object: Object{namespace, name}, Replicas: 1, Created: created, Containers: []Container{{image, words}}}
}

// ours is a release of this program that looks for others.
func ours(namespace, name, schedulerName string, created int64) Deployment {
	return deployment(namespace, name, created, "mirror/gpu-scheduler:v1", "--scheduler-name="+schedulerName, "--deviceshare-deployment="+namespace+"/"+name)
}

// factsWith are those of our own release, made at 100, in the second 1000, and of others.
func factsWith(others ...Deployment) *Facts {
	return &Facts{Own: own(), OwnLease: own(), Names: []string{"volcano"}, Now: 1000 * second,
		Deployments: append([]Deployment{ours("deviceshare-system", "deviceshare-scheduler", "volcano", 100)}, others...)}
}

func TestDeploymentsThatTakeTheSamePods(t *testing.T) {
	const image = "docker.io/volcanosh/vc-scheduler:v1.14.1"
	none := deployment("volcano-system", "volcano-scheduler", 1, image)
	none.Replicas = 0
	unguarded := deployment("a", "deviceshare-scheduler", 200, "deviceshare/scheduler:v0", "--deviceshare-scheduler-config-map=a/b")
	sidecar := deployment("a", "b", 1, "nginx")
	sidecar.Containers = append(sidecar.Containers, Container{Image: image})
	for name, c := range map[string]struct {
		other Deployment
		want  string
	}{
		"Volcano's as its chart installs it":           {deployment("volcano-system", "volcano-scheduler", 1, image, "--leader-elect=true"), "volcano-system/volcano-scheduler"},
		"Volcano's that was installed later":           {deployment("a", "b", 900, image), "a/b"},
		"Volcano's that was scaled to nothing":         {none, ""},
		"Volcano's of another name":                    {deployment("a", "b", 1, image, "--scheduler-name=batch"), ""},
		"Volcano's of another name, as two words":      {deployment("a", "b", 1, image, "--scheduler-name", "batch"), ""},
		"Volcano's of several names":                   {deployment("a", "b", 1, image, "--scheduler-name=batch,volcano"), "a/b"},
		"Volcano's with the flag twice":                {deployment("a", "b", 1, image, "--scheduler-name=batch", "--scheduler-name=volcano"), "a/b"},
		"Volcano's under another image's name":         {deployment("a", "b", 1, "mirror/s:1", "/vc-scheduler", "-v=3"), "a/b"},
		"Volcano's beside another container":           {sidecar, "a/b"},
		"any other program":                            {deployment("a", "b", 1, "nginx", "--scheduler-name=volcano"), ""},
		"a second release of ours, which is younger":   {ours("a", "deviceshare-scheduler", "volcano", 200), ""},
		"a second release of ours, which is older":     {ours("a", "deviceshare-scheduler", "volcano", 50), "a/deviceshare-scheduler"},
		"one of the same age that comes first by name": {ours("a", "deviceshare-scheduler", "volcano", 100), "a/deviceshare-scheduler"},
		"one of the same age that comes later by name": {ours("z", "deviceshare-scheduler", "volcano", 100), ""},
		"a second release of ours, of another name":    {ours("a", "deviceshare-scheduler", "batch", 50), ""},
		"a younger one of ours that does not look":     {unguarded, "a/deviceshare-scheduler"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, r := range Find(factsWith(c.other)) {
				got += r.Object.String()
			}
			if got != c.want {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

func TestLeasesThatSomebodyRenews(t *testing.T) {
	const now = 1000 * second
	held := Lease{Object: Object{"volcano-system", "volcano"}, Holder: "volcano-scheduler-77f-x_1234", Renewed: now - 5*second, Duration: 15}
	batch := deployment("volcano-system", "volcano-scheduler", 1, "vc-scheduler", "--scheduler-name=batch,night")
	stopped := batch
	stopped.Replicas = 0
	for name, c := range map[string]struct {
		edit   func(*Lease)
		others []Deployment
		found  bool
	}{
		"renewed a moment ago":                                {nil, nil, true},
		"given back":                                          {func(l *Lease) { l.Holder = "" }, nil, false},
		"not renewed for longer than it lasts":                {func(l *Lease) { l.Renewed = now - 16*second }, nil, false},
		"renewed by a clock that is late":                     {func(l *Lease) { l.Renewed, l.Before = now-400*second, now-460*second }, nil, true},
		"not renewed since the last look, by such a clock":    {func(l *Lease) { l.Renewed, l.Before = now-400*second, now-400*second }, nil, false},
		"renewed by a clock that is early":                    {func(l *Lease) { l.Renewed, l.Before = now+400*second, now+340*second }, nil, true},
		"left behind by a clock that is early":                {func(l *Lease) { l.Renewed = now + 400*second }, nil, false},
		"our own":                                             {func(l *Lease) { l.Object = own() }, nil, false},
		"of a Deployment with other names":                    {nil, []Deployment{batch}, false},
		"of a pod that ends, while its Deployment is at zero": {nil, []Deployment{stopped}, true},
		"of a process beside a Deployment with other names":   {func(l *Lease) { l.Holder = "host-7_1234" }, []Deployment{batch}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l, f := held, factsWith(c.others...)
			if c.edit != nil {
				c.edit(&l)
			}
			f.Leases = []Lease{l}
			got := Find(f)
			if (len(got) > 0) != c.found || c.found && (got[0].Object != l.Object || got[0].Kind != LeaseOnly) {
				t.Errorf("found %v, want %v", got, c.found)
			}
		})
	}
}

func TestOfReleasesThatLookForEachOtherOneGoesOn(t *testing.T) {
	all := []Deployment{ours("c", "s", "volcano", 100), ours("b", "s", "volcano", 100), ours("a", "s", "volcano", 300), ours("d", "s", "batch", 1)}
	var goOn []string
	for _, d := range all[:3] {
		if len(Find(&Facts{Own: d.Object, Names: []string{"volcano"}, Deployments: all})) == 0 {
			goOn = append(goOn, d.String())
		}
	}
	if want := []string{"b/s"}; !slices.Equal(goOn, want) {
		t.Errorf("%q go on, want %q", goOn, want)
	}
	deleted := Find(&Facts{Own: Object{"gone", "s"}, Names: []string{"volcano"}, Deployments: all})
	if len(deleted) != 3 {
		t.Errorf("a process whose Deployment is gone finds %v", deleted)
	}
}

func TestARivalSaysWhatToDo(t *testing.T) {
	for want, r := range map[string]Rival{
		"Deployment v/s takes the pods of scheduler volcano, too":                         {Object{"v", "s"}, Volcano, "volcano", ""},
		"kubectl -n v scale deployment s --replicas=0, and custom.scheduler_enable=false": {Object{"v", "s"}, Volcano, "volcano", ""},
		"kubectl -n v scale deployment t --replicas=0":                                    {Object{"v", "t"}, Twin, "volcano", ""},
		`"host_1", which renews the lease v/volcano, takes the pods`:                      {Object{"v", "volcano"}, LeaseOnly, "volcano", "host_1"},
		"if it takes other pods, set volcano.checkScheduler=false":                        {Object{"v", "volcano"}, LeaseOnly, "volcano", "host_1"},
	} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("%q does not say %q", r, want)
		}
	}
}
