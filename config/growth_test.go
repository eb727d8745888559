// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"strings"
	"testing"

	"deviceshare/config"
)

// The eight lines stand for a hundred million values.
func TestATextThatGrowsWhenReadIsRefused(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 9; i++ {
		d := string(rune('0' + i))
		p := string(rune('0' + i - 1))
		b.WriteString("a" + d + ": &a" + d + " [" + strings.TrimSuffix(strings.Repeat("*a"+p+",", 10), ",") + "]\n")
	}
	b.WriteString("nvidia: *a8\n")
	_, problems := config.LoadDevice([]byte(b.String()))
	if len(problems) != 1 || !strings.Contains(problems[0].Message, "aliasing") {
		t.Errorf("got %d problems, the first %v", len(problems), problems[:min(1, len(problems))])
	}
}
