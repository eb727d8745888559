// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"deviceshare/manifests/images/image"
	"deviceshare/manifests/images/product"
)

// plugin is what krew, kubectl's manager of plugins, has to know of one.
type plugin struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   pluginMetadata `json:"metadata"`
	Spec       pluginSpec     `json:"spec"`
}

type pluginMetadata struct {
	Name string `json:"name"`
}

type pluginSpec struct {
	Version          string           `json:"version"`
	ShortDescription string           `json:"shortDescription"`
	Description      string           `json:"description"`
	Platforms        []pluginPlatform `json:"platforms"`
}

type pluginPlatform struct {
	Selector pluginSelector `json:"selector"`
	URI      string         `json:"uri"`
	SHA256   string         `json:"sha256"`
	Bin      string         `json:"bin"`
}

type pluginSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// writePlugins packs the plugins of kubectl for every platform, and says in a manifest of krew
// where they are: below downloads, or beside it if that is empty. It returns the names of the
// files.
func writePlugins(b product.Builder, dir, downloads string) ([]string, error) {
	m := plugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: pluginMetadata{"deviceshare"},
		Spec: pluginSpec{
			Version: b.Version, ShortDescription: "Show shared GPUs: who has what, and why a pod waits",
			Description: "Shows who holds which part of which GPU, what is free, why a pod waits and what helps, what containers use, " +
				"and what is wrong with the installation. It reads the API server, or a file that was captured there.\n",
		},
	}
	var names []string
	for _, p := range b.Platforms {
		data, err := packPlugins(b, p.Arch)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("%s-%s-linux-%s.tar.gz", product.Plugins()[0], b.Version, p.Arch)
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return nil, fmt.Errorf("write the plugin of kubectl: %w", err)
		}
		names = append(names, name)
		uri := name
		if downloads != "" {
			uri = strings.TrimSuffix(downloads, "/") + "/" + name
		}
		m.Spec.Platforms = append(m.Spec.Platforms, pluginPlatform{
			Selector: pluginSelector{map[string]string{"os": "linux", "arch": p.Arch}}, URI: uri,
			SHA256: fmt.Sprintf("%x", sha256.Sum256(data)), Bin: product.Plugins()[0],
		})
	}
	text, err := yaml.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write the manifest of the plugin of kubectl: %w", err)
	}
	name := fmt.Sprintf("deviceshare-%s.krew.yaml", b.Version)
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
		return nil, fmt.Errorf("write the manifest of the plugin of kubectl: %w", err)
	}
	return append(names, name), nil
}

// packPlugins is an archive of the plugins for one architecture, with their licence.
func packPlugins(b product.Builder, arch string) ([]byte, error) {
	files := []image.File{{Path: "LICENSE", Source: filepath.Join(b.Repo, "LICENSE"), Mode: 0o644}}
	for _, name := range product.Plugins() {
		files = append(files, image.File{Path: name, Source: b.PluginFile(arch, name), Mode: 0o755})
	}
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	if err := image.WriteTar(zip, files); err != nil {
		return nil, fmt.Errorf("pack the plugin of kubectl: %w", err)
	}
	if err := zip.Close(); err != nil {
		return nil, fmt.Errorf("pack the plugin of kubectl: %w", err)
	}
	return out.Bytes(), nil
}
