// SPDX-License-Identifier: Apache-2.0

// Package helm builds helm for the tests, from helm's own source. It is built in the module of
// the sandbox's control plane, because both compile the same packages of Kubernetes and the build
// cache then has most of them.
package helm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// flags tell helm its own version and that of Kubernetes, as its Makefile does: otherwise it
// takes the cluster of `helm template` for Kubernetes 1.20. Both versions are those of
// e2e/controlplane/go.mod.
func flags() string {
	const cmd = "helm.sh/helm/v4/"
	set := []string{"-s -w", "-X " + cmd + "internal/version.version=v4.0.1"}
	for _, v := range []string{"internal/version.kubeClientVersion", "pkg/chart/common.k8sVersion", "pkg/chart/v2/lint/rules.k8sVersion"} {
		set = append(set, "-X "+cmd+v+"Major=1", "-X "+cmd+v+"Minor=34")
	}
	return strings.Join(set, " ")
}

// Build makes .sandbox/bin/helm in the repository and returns its path. It takes minutes where
// the sandbox was never built, and a second where helm is up to date. progress gets a line
// every so often while it takes long. Several processes may build at once.
func Build(ctx context.Context, repo string, progress func(line string)) (string, error) {
	repo, err := filepath.Abs(repo)
	if err != nil {
		return "", fmt.Errorf("build helm: %w", err)
	}
	path := filepath.Join(repo, ".sandbox", "bin", "helm")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("build helm: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("build helm: %w", err)
	}
	defer lock.Close()
	done := make(chan struct{})
	defer close(done)
	go tell(progress, done)
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("build helm: lock %s: %w", lock.Name(), err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-ldflags="+flags(), "-o", path, "helm.sh/helm/v4/cmd/helm")
	build.Dir = filepath.Join(repo, "e2e", "controlplane")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the control plane is compiled
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build helm in %s: %w\n%s", build.Dir, err, out)
	}
	return path, nil
}

// tell says every so often that the build goes on.
func tell(progress func(string), done <-chan struct{}) {
	tick := time.NewTicker(20 * time.Second)
	defer tick.Stop()
	for begin := time.Now(); ; {
		select {
		case <-done:
			return
		case <-tick.C:
			progress(fmt.Sprintf("building helm, which takes minutes the first time: %.0f s", time.Since(begin).Seconds()))
		}
	}
}
