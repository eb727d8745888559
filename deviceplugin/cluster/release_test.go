// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/sharing/wire"
)

func TestADriverIsLetGoUntilTheTimeOfTheAnnotation(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"":                          0,
		"yes":                       0,
		"1h":                        0,
		"2026-11-30T12:00:00Z":      0,
		"2026-11-30T11:59:59Z":      0,
		"2026-11-30T12:30:00Z":      30 * time.Minute,
		"2026-11-30T13:30:00+01:00": 30 * time.Minute,
		"2026-12-01T12:00:30Z":      24*time.Hour + 30*time.Second, // by a clock that is ahead
		"2026-12-01T12:01:01Z":      0,
		"2036-11-30T12:00:00Z":      0,
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{wire.NodeReleaseDriver: text}}}
		if got := releasedFor(n, now); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// releasedNode says that its driver is to be let go for so long.
func releasedNode(t *testing.T, d time.Duration) *corev1.Node {
	t.Helper()
	n := openNode(t)
	n.Annotations[wire.NodeReleaseDriver] = time.Now().Add(d).UTC().Format(time.RFC3339Nano)
	return n
}

// isUsedAgain starts publishers whose node is released for a while, until one is quick enough to
// see that before the while is over. It must say that it is over by itself.
func isUsedAgain(t *testing.T, start func(*corev1.Node) *published) {
	t.Helper()
	for while := time.Second; while < time.Hour; while *= 2 {
		p := start(releasedNode(t, while))
		for end := time.Now().Add(while); time.Now().Before(end) && len(p.said()) == 0; {
			time.Sleep(time.Millisecond)
		}
		if len(p.said()) == 0 {
			continue // it came too late
		}
		for deadline := time.Now().Add(10 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if said := p.said(); slices.Equal(said, []bool{true, false}) {
				return
			}
		}
		t.Fatalf("told %v, want that the driver is released and then that it is not", p.said())
	}
}

// said is what the source was told of the driver.
func (p *published) said() []bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.releases)
}

// A device plugin that starts while the driver is replaced must not use it.
func TestADriverIsLetGoBeforeTheDevicesAreKnownAndUsedAgainWhenTheTimeIsOver(t *testing.T) {
	isUsedAgain(t, func(n *corev1.Node) *published { return startUnready(t, n, time.Hour) })
}

func TestADriverIsUsedAgainWhenTheTimeIsOverThoughNothingElseHappens(t *testing.T) {
	isUsedAgain(t, func(n *corev1.Node) *published { return startPublisher(t, n) })
}
