package suites

import (
	"testing"
)

func TestInstalledDev(t *testing.T) {
	w := start(t)
	t.Run("placement", func(t *testing.T) { testPlacement(t, w) })
	t.Run("isolation", func(t *testing.T) { testIsolation(t, w) })
	t.Run("mps", func(t *testing.T) { testMPS(t, w) })
	t.Run("partitions", func(t *testing.T) { testPartitions(t, w) })
}
