// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"deviceshare/deviceplugin/node"
)

// healthFlags are the flags that say which critical errors take a device out of service.
type healthFlags struct {
	IgnoredXIDs []string
	// Quiet is the time without such errors after which a device that answers is healthy again.
	Quiet time.Duration
	// Wait is how long a pod that has not begun waits for a device that takes no pods.
	Wait time.Duration
}

// defaultHealthFlags ignore what programs cause, and what DP_DISABLE_HEALTHCHECKS names, the
// variable of NVIDIA's device plugin.
func defaultHealthFlags() healthFlags {
	// Kubernetes too leaves a pod for 5 minutes where its node does not answer. A driver that is
	// updated, or a device that is reset, takes less.
	h := healthFlags{Quiet: time.Minute, Wait: 5 * time.Minute}
	for _, xid := range node.ApplicationXIDs() {
		h.IgnoredXIDs = append(h.IgnoredXIDs, strconv.FormatUint(xid, 10))
	}
	if more := os.Getenv("DP_DISABLE_HEALTHCHECKS"); more != "" {
		h.IgnoredXIDs = append(h.IgnoredXIDs, strings.Split(more, ",")...)
	}
	return h
}

func (h *healthFlags) addFlags(f *pflag.FlagSet) {
	f.DurationVar(&h.Quiet, "health-quiet", h.Quiet, "time without critical errors after which a device that answers is healthy again")
	f.DurationVar(&h.Wait, "broken-device-wait", h.Wait,
		"time for which a pod that has not begun waits for a device that takes no pods, before it is evicted so that it is placed again")
	f.StringSliceVar(&h.IgnoredXIDs, "ignore-xids", h.IgnoredXIDs, "critical errors (XID) that say nothing about the device; all ignores every one")
}

func (h *healthFlags) findMistakes() []error {
	var wrong []error
	if _, err := h.parseRules(); err != nil {
		wrong = append(wrong, err)
	}
	if h.Wait <= 0 {
		wrong = append(wrong, fmt.Errorf("--broken-device-wait=%s: want more than 0", h.Wait))
	}
	return wrong
}

// parseRules returns when critical errors count.
func (h *healthFlags) parseRules() (node.HealthRules, error) {
	rules, err := node.ReadHealthRules(h.IgnoredXIDs, node.Moment(h.Quiet))
	if err != nil {
		return rules, fmt.Errorf("--ignore-xids: %w", err)
	}
	return rules, nil
}
