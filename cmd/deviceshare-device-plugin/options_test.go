// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func parse(t *testing.T, args ...string) error {
	t.Helper()
	o := defaultOptions()
	o.nodeName = "n"
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.addFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	return o.validateFlags()
}

func TestEveryMistakeOfTheCommandLineIsNamedAtOnce(t *testing.T) {
	err := parse(t, "--node-name=", "--cdi-dir=relative", "--driver-edits=magic", "--memory-resources=some", "--health-probe=-1s",
		"--driver-file=/only-host", "--ignore-xids=13,x",
		"--runtime-classes=*,a_b", "--mps-root=run", "--placement-keys=keys", "--mps-users=some", "--mps-compute=half", "--mps-shm-size=64", "--time-slice=brief")
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"--node-name", `--cdi-dir="relative"`, "nvcdi or files", "--memory-resources", "--health-probe=-1s", "HOST:CONTAINER", `"x"`, `"a_b" is not the name`, "* stands for all names",
		`--mps-root="run"`, "want one or any", "want percentage or partition", `--mps-shm-size="64"`, "want one of default, short, medium, long"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not mention %s:\n%v", want, err)
		}
	}
}

func TestGoodCommandLines(t *testing.T) {
	for name, args := range map[string][]string{
		"nothing":      {},
		"files":        {"--driver-edits=files", "--driver-file=/a:/b", "--driver-file=/c:/d:rw", "--dev-root=/run/dev"},
		"all ignored":  {"--ignore-xids=all"},
		"more shm":     {"--mps-shm-size=2Gi"},
		"any class":    {"--runtime-classes=*", "--user-namespaces"},
		"no class":     {"--runtime-classes="},
		"old and slow": {"--memory-resources=device-plugin", "--health-probe=30s"},
	} {
		if err := parse(t, args...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheToolkitNeedsADirectoryOfDevicesItKnows(t *testing.T) {
	if err := parse(t, "--dev-root=/run/devices"); err == nil || !strings.Contains(err.Error(), "must be dev") {
		t.Errorf("the error is %v", err)
	}
}

func TestFilesNeedTheirMode(t *testing.T) {
	if err := parse(t, "--driver-file=/a:/b"); err == nil || !strings.Contains(err.Error(), "--driver-edits=files") {
		t.Errorf("the error is %v", err)
	}
}
