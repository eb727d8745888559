// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestMistakesOfCertifyAreToldTogether(t *testing.T) {
	c := certifyCommand()
	c.SetArgs([]string{"--namespace=ns", "--serving-secret=", "--patience=-1s"})
	c.SilenceErrors, c.SilenceUsage = true, true
	err := c.Execute()
	for _, part := range []string{"--service-name", "--serving-secret", "--patience=-1s", "certify --help"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}
