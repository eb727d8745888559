// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"crypto/fips140"
	"crypto/md5"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// With `fips: only` in the chart, cryptography outside of FIPS 140-3 is an error. All tests of this
// package pass in such a process.
func TestPlacementsAreSignedAndCheckedWithFIPSCryptographyOnly(t *testing.T) {
	if fips140.Enabled() {
		t.Skip("this process is the other one")
	}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), "GODEBUG=fips140=only")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, test := range []string{"TestOtherCryptographyFails", "TestWhatASchedulerSignsANodeAccepts"} {
		if !strings.Contains(string(out), "--- PASS: "+test) {
			t.Errorf("%s did not pass:\n%s", test, out)
		}
	}
}

// TestOtherCryptographyFails shows that the other process is what it is meant to be.
func TestOtherCryptographyFails(t *testing.T) {
	if !fips140.Enabled() {
		t.Skip("only where FIPS 140-3 is enforced")
	}
	defer func() {
		if recover() == nil {
			t.Error("MD5 works")
		}
	}()
	md5.Sum(nil)
}
