// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// crowd is the pods of a node: as the watch has them, and as the API server does.
type crowd struct {
	nobody
	watched []*corev1.Pod
	there   []*corev1.Pod
	silent  error // of the API server
}

func (c *crowd) Live() map[sharing.Owner]types.NamespacedName {
	all := map[sharing.Owner]types.NamespacedName{}
	for _, p := range c.watched {
		all[sharing.Owner(p.UID)] = types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	}
	return all
}

func (c *crowd) Pod(o sharing.Owner) (*corev1.Pod, bool) {
	for _, p := range c.watched {
		if sharing.Owner(p.UID) == o {
			return p, true
		}
	}
	return nil, false
}

func (c *crowd) Fetch(_ context.Context, name types.NamespacedName) (*corev1.Pod, error) {
	for _, p := range c.there {
		if c.silent == nil && p.Name == name.Name {
			return p, nil
		}
	}
	if c.silent != nil {
		return nil, c.silent
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name.Name)
}

// named is a pod with a share.
func named(t *testing.T, name string, shares ...sharing.Share) *corev1.Pod {
	t.Helper()
	pod := podOf(t, ourScheduler, shares...)
	pod.Name, pod.UID = name, types.UID(name)
	return pod
}

// start is a start of the container of a pod that has a share.
func start(t *testing.T, k *Manager, pod *corev1.Pod) (modes.Claim, error) {
	t.Helper()
	return k.admitContainer(t.Context(), pod, kubelet.Container{Name: "main", ID: "id-of-" + pod.Name}, slotsOf(1))
}

// crowded is a manager with a pod on the first device that has begun, and a second pod there.
func crowded(t *testing.T, first, second sharing.Share) (*Manager, *crowd) {
	t.Helper()
	inv := inventoryOf()
	k, c := managerOn(t, &inv), &crowd{}
	c.watched = []*corev1.Pod{named(t, "first", first), named(t, "second", second)}
	c.there = append(c.there, c.watched...)
	k.cfg.Pods = c
	if _, err := start(t, k, c.watched[0]); err != nil {
		t.Fatal(err)
	}
	return k, c
}

func whole(s sharing.Share) sharing.Share {
	s.Whole = true
	return s
}

func TestAPodDoesNotStartOnWhatAnotherOneHas(t *testing.T) {
	const all = 24 * 1024
	for name, c := range map[string]struct {
		first, second sharing.Share
		change        func(*crowd)
		anew, waits   string
	}{
		"there is room for both": {first: shareOf(0, 12000), second: shareOf(0, 12000)},
		"the memory is given twice": {first: shareOf(0, 13000), second: shareOf(0, 12000),
			anew: "it cannot have beside ns/first"},
		"the first has the device whole": {first: whole(shareOf(0, all)), second: shareOf(0, 1),
			anew: "it cannot have beside ns/first"},
		"the second is given a device whole that has somebody": {first: shareOf(0, 1), second: whole(shareOf(0, all)),
			anew: "it cannot have beside ns/first"},
		"another device": {first: whole(shareOf(0, all)), second: whole(shareOf(1, all))},
		"the first has ended, and the watch is late": {first: shareOf(0, 13000), second: shareOf(0, 12000),
			change: func(c *crowd) { c.there[0] = c.there[0].DeepCopy(); c.there[0].Status.Phase = corev1.PodSucceeded }},
		"the first is gone, and the watch is late": {first: shareOf(0, 13000), second: shareOf(0, 12000),
			change: func(c *crowd) { c.there = c.there[1:] }},
		"another pod has the first one's name": {first: shareOf(0, 13000), second: shareOf(0, 12000),
			change: func(c *crowd) { c.there[0] = c.there[0].DeepCopy(); c.there[0].UID = "other" }},
		"the API server is away": {first: shareOf(0, 13000), second: shareOf(0, 12000),
			change: func(c *crowd) { c.silent = errors.New("no route to host") },
			waits:  "it is not known whether that has ended: no route to host"},
		"the API server is away, and there is room": {first: shareOf(0, 1000), second: shareOf(0, 12000),
			change: func(c *crowd) { c.silent = errors.New("no route to host") }},
		"somebody makes the first one's annotations say less": {first: shareOf(0, 13000), second: shareOf(0, 12000),
			change: func(c *crowd) { c.watched[0] = named(t, "first", shareOf(0, 1)) },
			anew:   "it cannot have beside ns/first"},
		"somebody makes the first one's annotations unreadable": {first: shareOf(0, 13000), second: shareOf(0, 12000),
			change: func(c *crowd) {
				c.watched[0] = c.watched[0].DeepCopy()
				c.watched[0].Annotations = map[string]string{wire.PodPlacement: "{"}
			},
			anew: "it cannot have beside ns/first"},
	} {
		t.Run(name, func(t *testing.T) {
			k, crowd := crowded(t, c.first, c.second)
			if c.change != nil {
				c.change(crowd)
			}
			_, err := start(t, k, crowd.watched[1])
			judge(t, err, c.anew, c.waits)
			if _, err := start(t, k, crowd.watched[0]); err != nil {
				t.Errorf("the first one is refused when it starts again: %v", err)
			}
		})
	}
}

func TestAPodThatIsOnlyPlacedTakesNothing(t *testing.T) {
	k, c := crowded(t, shareOf(0, 1000), shareOf(1, 20000))
	third := named(t, "third", shareOf(1, 20000))
	c.watched = append(c.watched, third)
	if _, err := start(t, k, third); err != nil {
		t.Errorf("who comes first is refused: %v", err)
	}
	_, err := start(t, k, c.watched[1])
	c.there = append(c.there, third)
	judge(t, err, "", "")
	_, err = start(t, k, named(t, "fourth", shareOf(1, 20000)))
	judge(t, err, "it cannot have beside ns/second, ns/third", "")
}

func TestAPodOfAnotherDevicePluginKeepsWhatItHas(t *testing.T) {
	inv := inventoryOf()
	other := legacyPod(t, shareOf(0, 20000))
	other.Name, other.UID = "other", "other"
	k := managerOn(t, &inv)
	k.cfg.Pods = &crowd{watched: []*corev1.Pod{other}, there: []*corev1.Pod{other}}
	_, err := start(t, k, named(t, "ours", shareOf(0, 5000)))
	judge(t, err, "it cannot have beside ns/other", "")
	if _, err := start(t, k, named(t, "ours", shareOf(0, 4000))); err != nil {
		t.Errorf("there is room for it: %v", err)
	}
}

// unobserved tells nobody.
type unobserved struct{}

func (unobserved) Allocated()                                       {}
func (unobserved) Prepared(*corev1.Pod, modes.Claim, time.Duration) {}
func (unobserved) Refused(*corev1.Pod, error)                       {}
func (unobserved) Edited(*corev1.Pod, string)                       {}
func (unobserved) Released(sharing.Owner, error)                    {}

// told notes whose annotations were edited.
type told struct {
	unobserved
	edited []string
}

func (o *told) Edited(_ *corev1.Pod, container string) { o.edited = append(o.edited, container) }

func TestAContainerThatStartsAgainGetsWhatItGotBefore(t *testing.T) {
	for name, forge := range map[string]func(*corev1.Pod){
		"as it was":      nil,
		"more memory":    func(p *corev1.Pod) { p.Annotations = named(t, "p", shareOf(0, 20000)).Annotations },
		"another device": func(p *corev1.Pod) { p.Annotations = named(t, "p", shareOf(1, 1000)).Annotations },
		"two devices":    func(p *corev1.Pod) { p.Annotations = named(t, "p", shareOf(0, 1000), shareOf(1, 1000)).Annotations },
		"the device whole, without limits": func(p *corev1.Pod) {
			p.Annotations = named(t, "p", whole(shareOf(0, 24*1024))).Annotations
		},
		"unreadable text": func(p *corev1.Pod) { p.Annotations[wire.PodPlacement] = "[" },
		"no text at all":  func(p *corev1.Pod) { p.Annotations = nil },
	} {
		t.Run(name, func(t *testing.T) {
			inv := inventoryOf()
			k, observer := managerOn(t, &inv), &told{}
			k.cfg.Observer = observer
			pod := named(t, "p", shareOf(0, 1000))
			if _, err := start(t, k, pod); err != nil {
				t.Fatal(err)
			}
			if forge != nil {
				forge(pod)
			}
			c, err := start(t, k, pod)
			if err != nil || len(c.Devices) != 1 || c.Devices[0].Share != shareOf(0, 1000) {
				t.Errorf("it gets %+v, %v", c.Devices, err)
			}
			if (len(observer.edited) > 0) != (forge != nil) {
				t.Errorf("told of edits: %q", observer.edited)
			}
		})
	}
}

func TestAContainerThatHasNotBegunIsNotGuessed(t *testing.T) {
	inv := inventoryOf()
	pod := podOf(t, twoContainers(ourScheduler, shareOf(1, 1000)), shareOf(0, 1000))
	k := managerOn(t, &inv)
	if _, err := start(t, k, pod); err != nil {
		t.Fatal(err)
	}
	pod.Annotations[wire.PodPlacement] = "{"
	if c, err := k.admitContainer(t.Context(), pod, kubelet.Container{Name: "second", ID: "id-2"}, []string{"d"}); err == nil {
		t.Errorf("it gets %+v", c.Devices)
	}
}

func TestNobodyGetsMoreThanHisSpecAsksFor(t *testing.T) {
	cores := func(s sharing.Share, c sharing.Percent) sharing.Share {
		s.Cores = c
		return s
	}
	for name, c := range map[string]struct {
		ask  map[corev1.ResourceName]int64
		give sharing.Share
		anew string
	}{
		"what it asks for":                 {map[corev1.ResourceName]int64{wire.ResourceMemory: 1000, wire.ResourceCores: 30}, cores(shareOf(0, 1000), 30), ""},
		"more memory":                      {map[corev1.ResourceName]int64{wire.ResourceMemory: 1000}, shareOf(0, 1001), "given 1001MiB of device GPU-0, more than its spec asks for"},
		"a part of the device as a whole":  {map[corev1.ResourceName]int64{wire.ResourceMemory: 1000}, whole(shareOf(0, 1000)), "was given all of device GPU-0"},
		"half the memory in percent":       {map[corev1.ResourceName]int64{wire.ResourcePercentage: 50}, shareOf(0, 12*1024), ""},
		"more than half":                   {map[corev1.ResourceName]int64{wire.ResourcePercentage: 50}, shareOf(0, 12*1024+1), "more than its spec asks for"},
		"more compute":                     {map[corev1.ResourceName]int64{wire.ResourceMemory: 1000, wire.ResourceCores: 30}, cores(shareOf(0, 1000), 31), "more than its spec asks for"},
		"compute without a limit":          {map[corev1.ResourceName]int64{wire.ResourceMemory: 1000, wire.ResourceCores: 30}, shareOf(0, 1000), "more than its spec asks for"},
		"compute that is there by default": {map[corev1.ResourceName]int64{wire.ResourceMemory: 1000}, cores(shareOf(0, 1000), 50), ""},
		"all that it asks for":             {nil, whole(shareOf(0, 24*1024)), ""},
		"all, and compute is limited":      {map[corev1.ResourceName]int64{wire.ResourceCores: 30}, whole(shareOf(0, 24*1024)), "more than its spec asks for"},
		"less, by default":                 {nil, shareOf(0, 1000), ""},
	} {
		t.Run(name, func(t *testing.T) {
			inv := inventoryOf()
			pod := named(t, "p", c.give)
			for resourceName, amount := range c.ask {
				pod.Spec.Containers[1].Resources.Limits[resourceName] = *resource.NewQuantity(amount, resource.DecimalSI)
			}
			_, err := start(t, managerOn(t, &inv), pod)
			judge(t, err, c.anew, "")
		})
	}
}
