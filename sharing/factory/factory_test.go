// SPDX-License-Identifier: Apache-2.0

package factory_test

import (
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
)

func TestEveryModeHasItsBackendAndNoOther(t *testing.T) {
	backends := factory.New()
	for _, m := range sharing.Modes() {
		if b, ok := backends.For(m); !ok || b.Mode() != m {
			t.Errorf("mode %s is served by %v", m, b)
		}
	}
	if len(backends) != len(sharing.Modes()) {
		t.Errorf("%d backends for %d modes", len(backends), len(sharing.Modes()))
	}
}

func TestTheBackendsAreInTheDocumentedOrderOfTheirModes(t *testing.T) {
	for i, m := range sharing.Modes() {
		if got := factory.New().Index(m); got != i {
			t.Errorf("the backend of mode %s is number %d, want %d", m, got, i)
		}
	}
}

func TestAnUnknownModeIsNotServedByAnother(t *testing.T) {
	for _, m := range []sharing.Mode{"", "HAMI-CORE", "hamicore", "exclusive"} {
		if b, ok := factory.New().For(m); ok {
			t.Errorf("mode %q is served by %s", m, b.Mode())
		}
	}
}
