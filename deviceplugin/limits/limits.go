// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// Paths inside the container, fixed by the contract with libvgpu.so and with
// readers of the shared region.
const (
	libraryInside = "/usr/local/vgpu/libvgpu.so"
	limitsInside  = "/usr/local/vgpu/limits"
	preloadInside = "/etc/ld.so.preload"
	sharedInside  = "/tmp/vgpu"
	regionInside  = sharedInside + "/vgpu.cache"
)

// limitsVersion is the first line of the limits file.
const limitsVersion = "vgpu-limits 1"

// formatLimits is the text of the limits file, for a container that has neighbours or not. Memory
// is in bytes, 0 is unlimited; cores are percent, 0 is unlimited; devices are in the order of the
// claim.
func formatLimits(c *modes.Claim, hasNeighbours bool) (string, error) {
	policy, err := policyOf(c)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nregion %s\npolicy %s\npriority %d\n", limitsVersion, regionInside, policy, c.Priority)
	b.WriteString(formatInterception(c.Interception))
	if hasNeighbours {
		fmt.Fprintf(&b, "borrow %s/%s\n", neighboursInside, neighbourName(directoryName(c.Owner, c.Container)))
	}
	for i := range c.Devices {
		share := &c.Devices[i].Share
		memory, cores, err := enforcedLimits(share)
		if err != nil {
			return "", fmt.Errorf("claim %s: %w", c.ID, err)
		}
		fmt.Fprintf(&b, "device %d %s memory=%d cores=%d\n", i, share.Device, memory, cores)
	}
	return b.String(), nil
}

// formatInterception returns the lines for settings that differ from the library's defaults. An
// older library, which does not know them, then works as long as nothing differs.
func formatInterception(i modes.Interception) string {
	var b strings.Builder
	for _, w := range []struct {
		set  bool
		line string
	}{
		{i.ContextFree, "context free"},
		{i.KeepDeepbind, "deepbind keep"},
		{i.Oversubscribe, "oversubscribe on"},
	} {
		if w.set {
			b.WriteString(w.line + "\n")
		}
	}
	return b.String()
}

// policyOf is the compute policy, spelled out.
func policyOf(c *modes.Claim) (string, error) {
	switch c.Policy {
	case "":
		return "default", nil
	case "default", "force", "disable":
		return c.Policy, nil
	}
	return "", fmt.Errorf("claim %s: compute policy %q: want default, force or disable", c.ID, c.Policy)
}

// enforcedLimits returns what libvgpu.so enforces for one share; 0 is unlimited. A share that is
// not a whole device always has a memory limit. One without is a bug elsewhere, and an
// error here, so that it does not turn into "unlimited".
func enforcedLimits(s *sharing.Share) (sharing.Bytes, sharing.Percent, error) {
	switch {
	case s.Whole:
		return 0, 0, nil
	case s.Memory <= 0:
		return 0, 0, fmt.Errorf("the share of device %s has no memory limit and is no whole device", s.Device)
	case s.Cores < 0 || s.Cores > 100:
		return 0, 0, fmt.Errorf("the share of device %s has %d%% of the compute: want 0 to 100", s.Device, s.Cores)
	}
	return s.Memory, s.Cores, nil
}

// limitsEnvironment is the same limits for readers that know only variables. The
// limits file wins wherever both are read. Memory is rounded down to whole MiB,
// the unit of that format, so that it never promises more.
func limitsEnvironment(c *modes.Claim) []modes.Variable {
	env := []modes.Variable{
		{Name: "CUDA_DEVICE_MEMORY_SHARED_CACHE", Value: regionInside},
		{Name: "CUDA_TASK_PRIORITY", Value: strconv.Itoa(c.Priority)},
	}
	if c.Policy != "" && c.Policy != "default" {
		env = append(env, modes.Variable{Name: "GPU_CORE_UTILIZATION_POLICY", Value: c.Policy})
	}
	if c.Interception.Oversubscribe {
		env = append(env, modes.Variable{Name: "CUDA_OVERSUBSCRIBE", Value: "true"})
	}
	for i := range c.Devices {
		s, n := &c.Devices[i].Share, strconv.Itoa(i)
		cores := "100"
		if !s.Whole {
			env = append(env, modes.Variable{Name: "CUDA_DEVICE_MEMORY_LIMIT_" + n, Value: formatMebibytes(s.Memory)})
			if s.Cores > 0 {
				cores = strconv.Itoa(int(s.Cores))
			}
		}
		env = append(env, modes.Variable{Name: "CUDA_DEVICE_SM_LIMIT_" + n, Value: cores})
		if i == 0 {
			env = append(env, modes.Variable{Name: "CUDA_DEVICE_SM_LIMIT", Value: cores})
		}
	}
	slices.SortFunc(env, func(a, b modes.Variable) int { return strings.Compare(a.Name, b.Name) })
	return env
}

// formatMebibytes writes an amount the way HAMi-core reads it. Below 1 MiB it is 1:
// that format reads 0 as no limit.
func formatMebibytes(b sharing.Bytes) string {
	return strconv.FormatInt(max(int64(b/sharing.MiB), 1), 10) + "m"
}
