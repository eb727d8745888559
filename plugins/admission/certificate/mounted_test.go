// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	testingclock "k8s.io/utils/clock/testing"
)

func TestAMountedCertificateIsReadyWhileItIsValidAndOverdueAfterFiveSixths(t *testing.T) {
	dir := t.TempDir()
	for key, text := range encoded(t, State{Serving: made(t, 0, hosts...)}) {
		if err := os.WriteFile(filepath.Join(dir, key), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	clock := testingclock.NewFakeClock(epoch)
	var logged []string
	m, err := NewMounted(dir, clock, funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	if want := epoch.Add(life); !m.NotAfter().Equal(want) {
		t.Errorf("it ends at %s, want %s", m.NotAfter(), want)
	}
	for _, tt := range []struct {
		age            time.Duration
		ready, overdue bool
	}{{-day, false, false}, {0, true, false}, {74 * day, true, false}, {76 * day, true, true}, {90 * day, true, true}, {90*day + time.Second, false, true}} {
		clock.SetTime(epoch.Add(tt.age))
		logged = nil
		m.warnIfOverdue(t.Context())
		if err := m.Ready(nil); (err == nil) != tt.ready || strings.Contains(strings.Join(logged, ""), "nobody has renewed") != tt.overdue {
			t.Errorf("at the age of %s: %v, logged %q", tt.age, err, logged)
		}
	}
}
