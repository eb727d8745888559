// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"testing"
)

func TestTheHookSaysWhatItLacks(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"an unknown command":     {[]string{"merge"}, "unknown command"},
		"no library and no file": {[]string{"merge-preload"}, "required flag(s) \"file\", \"library\" not set"},
		"no state":               {[]string{"merge-preload", "--library=/a.so", "--file=/b"}, "runtime's state"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := rootCommand(strings.NewReader(""))
			c.SetArgs(tc.args)
			c.SetOut(io.Discard)
			c.SetErr(io.Discard)
			if err := c.Execute(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the hook says %v, want %q", err, tc.want)
			}
		})
	}
}
