// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
)

//go:embed templates
var templates embed.FS

// configValues is everything that the configuration files of one sandbox depend on.
type configValues struct {
	NodeName, NodeIP string
	Ports            ports

	ContainerdRoot, ContainerdState, ContainerdSocket string
	Snapshotter, PauseImage                           string
	Shim, Runc, RuncRoot                              string
	// NVIDIA is NVIDIA's container runtime; empty means that the node has none.
	NVIDIA string
	CDIDir string
	// BaseSpec is a file with the specification that containers begin with; empty means
	// containerd's own.
	BaseSpec                                           string
	Network, Subnet, CNIBinDir, CNIConfDir, CNIDataDir string

	KubeletCert, KubeletKey, CA string
	PodLogs, ResolvConf, Cgroup string
	// TopologyPolicy is empty for a kubelet that pins no CPUs; SystemCPUs are those that it gives
	// to nobody.
	TopologyPolicy, SystemCPUs string
	// QuickRestarts is set for kubelets that can be told to restart containers soon.
	QuickRestarts bool

	// Accounts is the list of this project's users, as YAML.
	Accounts string
}

func newConfigValues(l layout, p ports, nodeIP, runc string) configValues {
	return configValues{
		NodeName: NodeName, NodeIP: nodeIP, Ports: p,
		ContainerdRoot: l.in("containerd"), ContainerdState: l.in("ctd"), ContainerdSocket: l.containerdSocket(),
		Snapshotter: "overlayfs", PauseImage: runtimeName(ImagePause),
		Shim: filepath.Join(l.runtime(), "containerd-shim-runc-v2"), Runc: runc, RuncRoot: l.in("runc"),
		CDIDir:  l.cdiDir(),
		Network: l.network(), Subnet: l.subnet(), CNIBinDir: l.runtime(), CNIConfDir: l.config("cni"), CNIDataDir: l.in("cni"),
		KubeletCert: l.cert(Kubelet), KubeletKey: l.key(Kubelet), CA: l.cert("ca"),
		PodLogs: l.podLogs(), ResolvConf: l.config("resolv.conf"), Cgroup: l.cgroup(),
		Accounts: fmt.Sprintf("[%q, %q, %q]", User(Scheduler), User(DevicePlugin), User(Webhook)),
	}
}

// configFiles are the files rendered from templates: template name to path below the config
// directory.
var configFiles = map[string]string{
	"containerd.toml": "containerd.toml",
	"cni.conflist":    "cni/10-sandbox.conflist",
	"kubelet.yaml":    "kubelet.yaml",
	"audit.yaml":      "audit.yaml",
}

// render fills in one template. Paths are double-quoted, which TOML, YAML and JSON read alike.
func render(name string, v configValues) (string, error) {
	t, err := template.New(name).Funcs(template.FuncMap{"quote": strconv.Quote}).Option("missingkey=error").
		ParseFS(templates, "templates/"+name)
	if err != nil {
		return "", fmt.Errorf("read template %s: %w", name, err)
	}
	var out strings.Builder
	if err := t.Execute(&out, v); err != nil {
		return "", fmt.Errorf("render %s: %w", name, err)
	}
	return out.String(), nil
}

// writeConfig writes every configuration file.
func writeConfig(l layout, v configValues, o Options) error {
	files := map[string]string{
		"resolv.conf":    "nameserver 127.0.0.1\n",
		"scheduler.conf": o.SchedulerConf,
	}
	for name, path := range configFiles {
		text, err := render(name, v)
		if err != nil {
			return err
		}
		files[path] = text
	}
	for path, text := range files {
		if err := os.WriteFile(l.config(path), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
	}
	return nil
}
