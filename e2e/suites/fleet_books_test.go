// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/workload"
)

// given is one device that a container was given, as the annotation names it that every scheduler
// and device plugin of both kinds understands.
type given struct {
	container, device string
	memory, cores     int64 // MiB, percent
}

// givenTo reads volcano.sh/vgpu-ids-new of a pod, which has an entry for each container that asks.
func givenTo(p *corev1.Pod) ([]given, error) {
	text := p.Annotations["volcano.sh/vgpu-ids-new"]
	if text == "" {
		return nil, nil // bound without devices; it does not start
	}
	var asking []string
	for _, c := range p.Spec.Containers {
		if _, ok := c.Resources.Limits[workload.Number]; ok {
			asking = append(asking, c.Name)
		}
	}
	entries := strings.Split(text, ";")
	if len(entries) != len(asking) {
		return nil, fmt.Errorf("pod %s: %d containers ask, and were given %q", p.Name, len(asking), text)
	}
	var out []given
	for i, entry := range entries {
		for device := range strings.SplitSeq(strings.TrimSuffix(entry, ":"), ":") {
			f := strings.Split(device, ",")
			if len(f) != 4 {
				return nil, fmt.Errorf("pod %s: %q is not UUID,type,memory,cores", p.Name, device)
			}
			memory, err := strconv.ParseInt(f[2], 10, 64)
			cores, wrong := strconv.ParseInt(f[3], 10, 64)
			if err != nil || wrong != nil {
				return nil, fmt.Errorf("pod %s: %q has no amounts", p.Name, device)
			}
			out = append(out, given{asking[i], f[0], memory * fleetFactor, cores})
		}
	}
	return out, nil
}

// books watches that no device of the fleet is given twice, from what the API server and the
// kubelets' checkpoints say, and knows nothing of how the product counts.
type books struct {
	fleet  *fleet
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	looks  int
	wrongs []string
}

// watchBooks looks again and again until finish.
func watchBooks(t *testing.T, f *fleet) *books {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b := &books{fleet: f, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		for ctx.Err() == nil {
			b.look(ctx)
			sleep(ctx, 200*time.Millisecond)
		}
	}()
	t.Cleanup(func() { cancel(); <-b.done })
	return b
}

// finish reports everything that was wrong at any time.
func (b *books) finish(t *testing.T) {
	t.Helper()
	b.cancel()
	<-b.done
	t.Logf("looked %d times whether something is given twice", b.looks)
	for _, w := range b.wrongs {
		t.Error(w)
	}
}

// look reads all pods at one moment.
func (b *books) look(ctx context.Context) {
	list, err := b.fleet.cluster.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return // not an answer about pods; the next look has one
	}
	var live []corev1.Pod
	for _, p := range list.Items {
		if p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed && asks(&p) {
			live = append(live, p)
		}
	}
	wrongs := b.fleet.wrong(live)
	for _, n := range b.fleet.nodes {
		wrongs = append(wrongs, twiceInCheckpoint(b.fleet.cluster.KubeletDir(n.name), live)...)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looks++
	for _, w := range wrongs {
		if !slices.Contains(b.wrongs, w) {
			b.wrongs = append(b.wrongs, w)
		}
	}
}

// use is what live pods have of one device.
type use struct {
	memory, cores, sharers int64
	exclusive              bool // somebody has all of its compute
	pods                   []string
}

// uses adds up what live pods have, by device.
func uses(live []corev1.Pod) (map[string]*use, []string) {
	out, wrongs := map[string]*use{}, []string{}
	for i := range live {
		list, err := givenTo(&live[i])
		if err != nil {
			wrongs = append(wrongs, err.Error())
		}
		for _, g := range list {
			key := live[i].Spec.NodeName + " " + g.device
			if out[key] == nil {
				out[key] = &use{}
			}
			u := out[key]
			u.memory, u.cores, u.sharers = u.memory+g.memory, u.cores+g.cores, u.sharers+1
			u.exclusive = u.exclusive || g.cores == 100
			u.pods = append(u.pods, live[i].Name)
		}
	}
	return out, wrongs
}

// wrong says what live pods have more than there is.
func (f *fleet) wrong(live []corev1.Pod) []string {
	have := map[string]int64{}
	for _, n := range f.nodes {
		for _, d := range n.devices {
			have[n.name+" "+d.UUID] = d.MemoryMiB
		}
	}
	found, wrongs := uses(live)
	for key, u := range found {
		memory, known := have[key]
		if !known {
			wrongs = append(wrongs, fmt.Sprintf("pods %v were given %s, which there is not", u.pods, key))
			continue
		}
		if u.memory > memory || u.cores > 100 || u.sharers > fleetSplit || u.exclusive && u.sharers > 1 {
			wrongs = append(wrongs, fmt.Sprintf("%s is given away too often: %d MiB, %d%%, exclusive %v, to %v", key, u.memory, u.cores, u.exclusive, u.pods))
		}
	}
	return wrongs
}

// twiceInCheckpoint finds kubelet devices that a kubelet has given to two containers of live pods.
func twiceInCheckpoint(kubeletDir string, live []corev1.Pod) []string {
	text, err := os.ReadFile(filepath.Join(kubeletDir, "device-plugins", "kubelet_internal_checkpoint"))
	if err != nil {
		return nil // none is written before the first allocation
	}
	var record struct {
		Data struct {
			PodDeviceEntries []struct {
				PodUID, ResourceName string
				DeviceIDs            map[string][]string
			}
		}
	}
	if json.Unmarshal(text, &record) != nil {
		return nil // it is just being written
	}
	holders, wrongs := map[string]string{}, []string{}
	for _, e := range record.Data.PodDeviceEntries {
		if !strings.HasPrefix(e.ResourceName, "volcano.sh/") || !slices.ContainsFunc(live, func(p corev1.Pod) bool { return string(p.UID) == e.PodUID }) {
			continue
		}
		for _, ids := range e.DeviceIDs {
			for _, id := range ids {
				key := e.ResourceName + " " + id
				// Containers of one pod that do not run at once may share one.
				if other, taken := holders[key]; taken && other != e.PodUID {
					wrongs = append(wrongs, fmt.Sprintf("%s: %s is held by pods %s and %s", kubeletDir, key, other, e.PodUID))
				}
				holders[key] = e.PodUID
			}
		}
	}
	return wrongs
}

// freest is the device of a node with the most memory that nobody has.
func (f *fleet) freest(ctx context.Context, t *testing.T, n *fleetNode) (freeMiB int64) {
	t.Helper()
	list, err := f.cluster.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.name})
	if err != nil {
		t.Fatal(err)
	}
	live := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !asks(&p) || p.Status.Phase == corev1.PodSucceeded })
	found, wrongs := uses(live)
	if len(wrongs) > 0 {
		t.Fatal(wrongs)
	}
	for _, d := range n.devices {
		free := d.MemoryMiB
		if u := found[n.name+" "+d.UUID]; u != nil {
			free -= u.memory
		}
		freeMiB = max(freeMiB, free)
	}
	return freeMiB
}
