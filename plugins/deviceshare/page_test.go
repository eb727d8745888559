// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/page"
)

// crowded are nodes with 8 devices and 16 pods each.
func crowded(t testing.TB, count int) []*api.NodeInfo {
	t.Helper()
	var infos []*api.NodeInfo
	for i := range count {
		inv := devices(fmt.Sprintf("node-%d", i), 8, 10000)
		var pods []*corev1.Pod
		for j := range 16 {
			pod := podOf(fmt.Sprintf("pod-%d-%d", i, j), "g", asks{number: 1, memory: 1500})
			pods = append(pods, runningOn(t, pod, inv.Node, share(inv.Devices[j%8].ID, 1500)))
		}
		infos = append(infos, infoOf(nodeOf(t, inv), pods))
	}
	return infos
}

// stuck is a connection whose other end does not read.
type stuck struct {
	http.ResponseWriter
	entered chan struct{}
	leave   chan struct{}
}

func (s *stuck) Write(text []byte) (int, error) {
	s.entered <- struct{}{}
	<-s.leave
	return 0, io.ErrClosedPipe
}

func TestAReaderOfTheLedgerWhoDoesNotReadDelaysNoSession(t *testing.T) {
	silence(t)
	infos := crowded(t, 20)
	p := bare(t, infos...)
	w := &stuck{ResponseWriter: httptest.NewRecorder(), entered: make(chan struct{}), leave: make(chan struct{})}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		p.store.LedgerHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, page.Path, nil))
	}()
	<-w.entered // the answer has begun and nobody reads it

	// Pods of every node change, so that a session writes what the reader was shown.
	for _, info := range infos {
		for _, task := range info.Tasks {
			task.Pod = task.Pod.DeepCopy()
		}
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		ssn, _ := sessionOf(infos...)
		next := p.store.Build(framework.Arguments{}).(*Plugin)
		next.joinSession(ssn)
		next.OnSessionClose(ssn)
	}()
	select {
	case <-over:
	case <-time.After(10 * time.Minute):
		t.Error("the session waits for the reader")
	}
	close(w.leave)
	<-answered
	<-over
}

// BenchmarkLedgerPage measures the answer of /deviceshare/ledger on 1,000 nodes with 8
// devices and 16 pods each: all of it, and the part of it during which no session can
// follow its snapshot.
func BenchmarkLedgerPage(b *testing.B) {
	silence(b)
	p := bare(b, crowded(b, 1000)...)
	b.Run("answer", func(b *testing.B) {
		for b.Loop() {
			p.store.LedgerHandler().ServeHTTP(nowhere{}, httptest.NewRequest(http.MethodGet, page.Path, nil))
		}
	})
	b.Run("locked", func(b *testing.B) {
		for b.Loop() {
			p.store.cluster.Copy()
		}
	})
}

// nowhere is a reader who throws everything away.
type nowhere struct{}

func (nowhere) Header() http.Header            { return http.Header{} }
func (nowhere) WriteHeader(int)                {}
func (nowhere) Write(text []byte) (int, error) { return len(text), nil }
