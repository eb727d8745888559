// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// target is one `go build`.
type target struct {
	what     string // for progress lines
	module   string // directory below the repository
	packages []string
	output   string // a file, or a directory with a trailing slash
	flags    []string
	env      []string // beside this process's, as NAME=value
	// needs is a directory below the repository; without Go code in it the target is left out.
	needs string
}

// Linker flags: without symbol tables, and with the driver's symbols looked up when they are
// called, as go-nvml needs it.
const (
	ldStrip = "-s -w"
	ldLazy  = "-extldflags=-Wl,-z,lazy"
)

// withoutCgo is how everything is compiled that needs no C: the scheduler and the webhook of the
// images run alone in theirs. What needs C is compiled with tagsPureGo, as make does: the build
// cache tells packages with other flags apart, and these tags keep cgo out of what all share.
const (
	withoutCgo = "CGO_ENABLED=0"
	tagsPureGo = "netgo,osusergo"
)

// targets are all binaries of a sandbox.
func targets(o Options, l layout) []target {
	out := []target{
		controlPlaneTarget(o, l),
		{what: "Volcano's controllers", module: controlPlaneModule,
			packages: []string{"volcano.sh/volcano/cmd/controller-manager"}, output: l.bin(VolcanoController),
			flags: []string{"-trimpath", "-ldflags=" + ldStrip}, env: []string{withoutCgo}},
	}
	if !o.NoKubelet {
		out = append(out, runtimeTarget(l), kubectlTarget(l), simulatorTarget(l))
	}
	if o.Installed { // the product comes in images
		out = append(out, nvidiaTarget(l))
		if o.StockScheduler {
			out = append(out, volcanoTarget(l))
		}
		if len(o.Hollow) > 0 {
			out = append(out, ownTarget(o, l, DevicePlugin), hookTarget(l))
		}
		return out
	}
	return append(out, productTargets(o, l)...)
}

// volcanoTarget is Volcano's scheduler.
func volcanoTarget(l layout) target {
	return target{what: "Volcano's scheduler", module: ".", packages: []string{"volcano.sh/volcano/cmd/scheduler"},
		output: l.bin(VolcanoScheduler), flags: []string{"-trimpath", "-ldflags=" + ldStrip}, env: []string{withoutCgo}}
}

// ownTarget is one of this project's binaries, compiled as for its image (manifests/images).
func ownTarget(o Options, l layout, component string) target {
	pkg := "cmd/deviceshare-" + component
	out := target{what: "deviceshare's " + component, module: ".", packages: []string{"./" + pkg}, output: productBinary(o, l, component),
		flags: []string{"-trimpath", "-tags=" + tagsPureGo, "-ldflags=" + ldStrip + " " + ldLazy}, needs: pkg}
	if component != DevicePlugin {
		out.env = []string{withoutCgo}
	}
	if o.Race {
		out.flags, out.env = []string{"-race", "-trimpath", "-tags=" + tagsPureGo, "-ldflags=" + ldLazy}, nil
	}
	return out
}

// hookTarget is what the device plugin brings to the host, beside libvgpu.so.
func hookTarget(l layout) target {
	return target{what: "deviceshare's hook", module: ".", packages: []string{"./cmd/deviceshare-hook"}, output: l.bin("deviceshare-hook"),
		flags: []string{"-trimpath", "-ldflags=" + ldStrip}, env: []string{withoutCgo}}
}

// kubectlTarget is the plugin of kubectl, which users run beside the cluster.
func kubectlTarget(l layout) target {
	const pkg = "cmd/" + kubectlDeviceshare
	return target{what: "deviceshare's plugin of kubectl", module: ".", packages: []string{"./" + pkg}, output: l.bin(kubectlDeviceshare),
		flags: []string{"-trimpath", "-ldflags=" + ldStrip}, env: []string{withoutCgo}, needs: pkg}
}

// simulatorTarget is what `kubectl deviceshare simulate` runs, from beside it.
func simulatorTarget(l layout) target {
	const name = kubectlDeviceshare + "-simulate"
	return target{what: "deviceshare's simulation", module: ".", packages: []string{"./cmd/" + name}, output: l.bin(name),
		flags: []string{"-trimpath", "-ldflags=" + ldStrip}, env: []string{withoutCgo}, needs: "cmd/" + name}
}

// runtimeTarget is containerd with everything around it.
func runtimeTarget(l layout) target {
	const ctd, cni = "github.com/containerd/containerd/v2/cmd/", "github.com/containernetworking/plugins/plugins/"
	return target{what: "containerd and its network plugins", module: "e2e/containerd",
		packages: []string{ctd + "containerd", ctd + "containerd-shim-runc-v2", ctd + "ctr",
			cni + "main/ptp", cni + "ipam/host-local"},
		output: l.runtime() + "/",
		flags:  []string{"-trimpath", "-tags=no_btrfs,no_devmapper,no_zfs", "-ldflags=" + ldStrip}, env: []string{withoutCgo}}
}

// productTargets are this project's own binaries, or Volcano's scheduler in place of ours.
func productTargets(o Options, l layout) []target {
	var out []target
	if o.hasDevicePlugin() {
		out = append(out, ownTarget(o, l, DevicePlugin), hookTarget(l))
	}
	if !o.NoWebhook {
		out = append(out, ownTarget(o, l, Webhook))
	}
	switch {
	case o.SchedulerBinary != "":
	case o.StockScheduler || !hasGo(filepath.Join(l.repo, "cmd/deviceshare-scheduler")):
		out = append(out, volcanoTarget(l))
	default:
		out = append(out, ownTarget(o, l, Scheduler))
	}
	return out
}

// productBinary is where a binary of this project is built to.
func productBinary(o Options, l layout, component string) string {
	if o.Race {
		return l.race(component)
	}
	return l.bin(component)
}

// schedulerBinary is the scheduler that a sandbox with these options runs.
func schedulerBinary(o Options, l layout) string {
	switch {
	case o.SchedulerBinary != "":
		return o.SchedulerBinary
	case o.StockScheduler || !hasGo(filepath.Join(l.repo, "cmd/deviceshare-scheduler")):
		return l.bin(VolcanoScheduler)
	default:
		return productBinary(o, l, Scheduler)
	}
}

// Build makes every binary and image that Start with the same options needs, below .sandbox in the
// repository. What is up to date is left as it is; the first build takes minutes, a later one
// seconds. While a sandbox with the same state directory runs it refuses, because components that
// restart would be other programs than before.
func Build(ctx context.Context, opts Options) error {
	o, err := opts.Defaults()
	if err != nil {
		return err
	}
	if err := Idle(o); err != nil {
		return err
	}
	l := layout{repo: o.Repo, state: o.State}
	if err := writeKubernetesModule(ctx, o, l); err != nil {
		return err
	}
	for _, t := range targets(o, l) {
		if t.needs != "" && !hasGo(filepath.Join(l.repo, t.needs)) {
			continue
		}
		if err := build(ctx, o, l, t); err != nil {
			return err
		}
	}
	if err := checkKubernetes(o, l); err != nil {
		return err
	}
	if err := buildPause(ctx, o, l); err != nil {
		return err
	}
	if o.NoKubelet {
		return nil
	}
	for _, dir := range []string{"e2e/fakegpu", "hami-core"} {
		if o.NoGPU {
			break
		}
		if err := makeC(ctx, o, l, dir); err != nil {
			return err
		}
	}
	if _, err := findRunc(ctx, o); err != nil {
		return err
	}
	return buildImages(ctx, o, l)
}

// build runs one `go build`; go itself skips what is up to date.
func build(ctx context.Context, o Options, l layout, t target) error {
	o.Progress("building " + t.what)
	args := slices.Concat(t.env, []string{"go", "build", "-buildvcs=false"}, t.flags, []string{"-o", t.output}, t.packages)
	if err := os.MkdirAll(filepath.Dir(t.output), 0o755); err != nil {
		return fmt.Errorf("build %s: %w", t.what, err)
	}
	return runQuiet(ctx, o, t.what, filepath.Join(l.repo, t.module), "env", args...)
}

// buildPause makes the first process of a cluster's namespaces, which is that of every pod too.
func buildPause(ctx context.Context, o Options, l layout) error {
	source := filepath.Join(l.repo, "e2e/sandbox/images/pause.c")
	return runQuiet(ctx, o, "pause", l.repo, "gcc", "-static", "-Os", "-s", "-o", l.bin("pause"), source)
}

// makeC runs make in a directory of C code, if it is there.
func makeC(ctx context.Context, o Options, l layout, dir string) error {
	if !exists(filepath.Join(l.repo, dir, "Makefile")) {
		return nil
	}
	o.Progress("building " + dir)
	return runQuiet(ctx, o, dir, l.repo, "make", "-C", dir)
}

// runQuiet runs a command and shows its output only when it fails. While it runs it says so every
// so often.
func runQuiet(ctx context.Context, o Options, what, dir, name string, args ...string) error {
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(20 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				o.Progress("  … still at it: " + what)
			}
		}
	}()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return fmt.Errorf("build %s: %w", what, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("build %s: %s %s: %w\n%s", what, name, strings.Join(args, " "), err, lastLines(string(out)))
	}
	return nil
}

// lastLines is the end of a command's output for an error message.
func lastLines(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return "    " + strings.Join(lines[max(0, len(lines)-tailLines):], "\n    ")
}

// findRunc returns the path of runc and installs Debian's package where it is missing.
func findRunc(ctx context.Context, o Options) (string, error) {
	if path, ok := lookRunc(); ok {
		return path, nil
	}
	const missing = "runc is missing: install it (on Debian: apt-get install runc)"
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return "", errors.New(missing)
	}
	o.Progress("installing runc")
	install := "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends runc"
	if err := runQuiet(ctx, o, "runc", "/", "sh", "-c", install); err != nil {
		return "", fmt.Errorf("%s: %w", missing, err)
	}
	if path, ok := lookRunc(); ok {
		return path, nil
	}
	return "", errors.New(missing)
}

// lookRunc looks in PATH and in the directory that a user's PATH often lacks.
func lookRunc() (string, bool) {
	for _, name := range []string{"runc", "/usr/sbin/runc", "/usr/local/sbin/runc"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	return "", false
}

// hasGo reports whether a directory holds Go code.
func hasGo(dir string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "*.go"))
	return len(files) > 0
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
