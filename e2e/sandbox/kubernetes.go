// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// ownKubernetes is the version of k8s.io/kubernetes in e2e/controlplane.
const ownKubernetes = "1.34.1"

// controlPlaneModule is the directory of the module of the control plane.
const controlPlaneModule = "e2e/controlplane"

// kubernetesVersion is what a version must look like: its patch counts too, because a module has no
// other versions.
var kubernetesVersion = regexp.MustCompile(`^1\.[1-9][0-9]\.(0|[1-9][0-9]*)$`)

// kubeletRestartsQuickly reports whether the kubelet can be told to start containers that die again
// and again without long pauses: whether it knows the feature gate KubeletCrashLoopBackOffMax.
func (o Options) kubeletRestartsQuickly() bool {
	_, minor, _ := strings.Cut(o.Kubernetes, ".")
	minor, _, _ = strings.Cut(minor, ".")
	return minor >= "32" // both have two digits
}

// controlPlane is the program with etcd, API server, controller manager and kubelet.
func (o Options) controlPlane(l layout) string {
	if o.Kubernetes == ownKubernetes {
		return l.bin("controlplane")
	}
	return l.bin("controlplane-" + o.Kubernetes)
}

// controlPlaneTarget compiles the control plane of a version of Kubernetes. Another version than
// that of e2e/controlplane has a module file of its own, which writeKubernetesModule makes.
func controlPlaneTarget(o Options, l layout) target {
	out := target{what: "control plane " + o.Kubernetes + " (etcd, apiserver, controller-manager, kubelet)",
		module: controlPlaneModule, packages: []string{"."}, output: o.controlPlane(l), env: []string{withoutCgo},
		flags: []string{"-trimpath", "-ldflags=" + ldStrip + " -X k8s.io/component-base/version.gitVersion=v" + o.Kubernetes}}
	if o.Kubernetes != ownKubernetes {
		out.flags = append(out.flags, "-modfile="+l.kubernetesModule(o.Kubernetes))
	}
	return out
}

// moduleFile is what `go mod edit -json` says, as far as it is read here.
type moduleFile struct {
	Go      string
	Require []moduleVersion
	Replace []struct{ Old, New moduleVersion }
}

type moduleVersion struct{ Path, Version string }

// writeKubernetesModule makes the module file with which `go build` compiles the control plane of
// the options' version: see otherModule. What go.mod leaves open, go's minimal version selection
// answers from the go.mod files of fixed versions, with the same answer every time, and the
// checksum database vouches for the contents. That is why neither the file nor its go.sum is
// checked in.
func writeKubernetesModule(ctx context.Context, o Options, l layout) error {
	if o.Kubernetes == ownKubernetes {
		return nil
	}
	o.Progress("choosing the modules of Kubernetes " + o.Kubernetes)
	text, err := kubernetesModule(ctx, o, l)
	if err != nil {
		return fmt.Errorf("choose the modules of Kubernetes %s: %w", o.Kubernetes, err)
	}
	path := l.kubernetesModule(o.Kubernetes)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("choose the modules of Kubernetes %s: %w", o.Kubernetes, err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("choose the modules of Kubernetes %s: %w", o.Kubernetes, err)
	}
	out, err := goCommand(ctx, filepath.Join(l.repo, controlPlaneModule), "list", "-mod=mod", "-modfile="+path, "-deps", ".")
	if err != nil {
		return fmt.Errorf("choose the modules of Kubernetes %s: %w", o.Kubernetes, err)
	}
	// go adds the newest version of a module that no go.mod names. That would be another build
	// tomorrow.
	for line := range strings.Lines(out.stderr) {
		if strings.Contains(line, "finding module for package") {
			return fmt.Errorf("choose the modules of Kubernetes %s: no go.mod names a version: %s", o.Kubernetes, line)
		}
	}
	return nil
}

// kubernetesModule reads the go.mod files from which otherModule makes one.
func kubernetesModule(ctx context.Context, o Options, l layout) (string, error) {
	own, err := readModule(ctx, filepath.Join(l.repo, controlPlaneModule, "go.mod"))
	if err != nil {
		return "", err
	}
	// Outside of the repository no go.mod has a say in what is downloaded.
	out, err := goCommand(ctx, os.TempDir(), "mod", "download", "-json", "k8s.io/kubernetes@v"+o.Kubernetes)
	if err != nil {
		return "", err
	}
	var download struct{ GoMod string }
	if err := json.Unmarshal([]byte(out.stdout), &download); err != nil {
		return "", fmt.Errorf("read what go says about the download: %w", err)
	}
	theirs, err := readModule(ctx, download.GoMod)
	if err != nil {
		return "", err
	}
	return otherModule(own, theirs, o.Kubernetes)
}

// otherModule is the go.mod of a control plane of another version of Kubernetes. It has the direct
// requirements of e2e/controlplane, with the k8s.io modules of that version, and etcd as it is
// there: the program is written for that version of the embedded etcd. own and theirs are the
// go.mod of e2e/controlplane and of k8s.io/kubernetes.
func otherModule(own, theirs moduleFile, version string) (string, error) {
	staging := "v0." + strings.TrimPrefix(version, "1.")
	var b strings.Builder
	fmt.Fprintf(&b, "module deviceshare/%s\n\ngo %s\n\n", controlPlaneModule, own.Go)
	replaced := 0
	for _, r := range theirs.Replace {
		// A module of Kubernetes' own, published beside it.
		if strings.HasPrefix(r.New.Path, "./staging/") {
			fmt.Fprintf(&b, "replace %s => %[1]s %s\n", r.Old.Path, staging)
			replaced++
		}
	}
	if replaced == 0 {
		return "", errors.New("the go.mod of k8s.io/kubernetes replaces nothing by ./staging: its layout is not known")
	}
	const etcd = "go.etcd.io/etcd/server/v3"
	for _, r := range own.Require {
		if r.Path == etcd {
			fmt.Fprintf(&b, "\nrequire %s %s\n", etcd, r.Version)
		}
	}
	fmt.Fprintf(&b, "require k8s.io/kubernetes v%s\n", version)
	for _, path := range []string{"k8s.io/component-base", "k8s.io/cri-client"} {
		fmt.Fprintf(&b, "require %s %s\n", path, staging)
	}
	return b.String(), nil
}

// readModule reads a go.mod.
func readModule(ctx context.Context, path string) (moduleFile, error) {
	out, err := goCommand(ctx, filepath.Dir(path), "mod", "edit", "-json", path)
	if err != nil {
		return moduleFile{}, err
	}
	var m moduleFile
	if err := json.Unmarshal([]byte(out.stdout), &m); err != nil {
		return m, fmt.Errorf("read %s: %w", path, err)
	}
	return m, nil
}

// checkKubernetes returns an error if a control plane was compiled from another version of
// Kubernetes than the options name. What it says of itself is a linker flag and proves nothing.
func checkKubernetes(o Options, l layout) error {
	info, err := buildinfo.ReadFile(o.controlPlane(l))
	if err != nil {
		return fmt.Errorf("read which Kubernetes %s is made of: %w", o.controlPlane(l), err)
	}
	want := map[string]string{"k8s.io/kubernetes": "v" + o.Kubernetes}
	for _, path := range []string{"k8s.io/apiserver", "k8s.io/kubelet", "k8s.io/apimachinery"} {
		want[path] = "v0." + strings.TrimPrefix(o.Kubernetes, "1.")
	}
	for _, m := range info.Deps {
		version := m.Version
		if m.Replace != nil {
			version = m.Replace.Version
		}
		if w, ok := want[m.Path]; ok && version != w {
			return fmt.Errorf("%s is made of %s %s, want %s", o.controlPlane(l), m.Path, version, w)
		}
		delete(want, m.Path)
	}
	if len(want) > 0 {
		return fmt.Errorf("%s is made of no module %v", o.controlPlane(l), want)
	}
	return nil
}

type outputs struct{ stdout, stderr string }

// goCommand runs go in a directory.
func goCommand(ctx context.Context, dir string, args ...string) (outputs, error) {
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return outputs{}, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), cmp.Or(context.Cause(ctx), err), lastLines(stderr.String()+stdout.String()))
	}
	return outputs{stdout.String(), stderr.String()}, nil
}
