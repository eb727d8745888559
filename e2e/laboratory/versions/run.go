// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Variable is the environment variable that tells TestInstalledCluster which version to run on.
const Variable = "DEVICESHARE_KUBERNETES"

// repetitions are subtests that do again what an earlier one did. They find what is rare, and a
// version is not rare.
const repetitions = "^identity$/^round_[2-9]$"

// Test runs the suites on one version, which it builds if need be, and writes to show what they
// say. A suite that fails is no error but a result; the suites after it run. Where there is an
// error, the results are those until then.
func Test(ctx context.Context, repo, version string, show io.Writer) (Run, error) {
	var names []string
	for _, s := range Suites() {
		names = append(names, s.Name)
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-ldflags=-extldflags=-Wl,-z,lazy", "-count=1", "-timeout=3h",
		"-run", fmt.Sprintf("^%s$/^(%s)$", testOfSuites, strings.Join(names, "|")),
		"-skip", fmt.Sprintf("^%s$/%s", testOfSuites, repetitions), "./e2e/suites/")
	cmd.Dir = repo
	cmd.Env = append(os.Environ(), "DEVICESHARE_E2E=1", Variable+"="+version)
	cmd.Stderr = show
	// An interrupted go waits for its tests, so they are interrupted too; their cluster ends with
	// them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return Run{Version: version}, fmt.Errorf("test Kubernetes %s: %w", version, err)
	}
	if err := cmd.Start(); err != nil {
		return Run{Version: version}, fmt.Errorf("test Kubernetes %s: %w", version, err)
	}
	results, err := readResults(stdout, show)
	var failed *exec.ExitError
	if waitErr := cmd.Wait(); waitErr != nil && !errors.As(waitErr, &failed) {
		err = errors.Join(err, waitErr)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		err = fmt.Errorf("test Kubernetes %s: %w", version, err)
	}
	return Run{Version: version, Results: results}, err
}
