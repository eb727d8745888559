// SPDX-License-Identifier: Apache-2.0

package release

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"deviceshare/manifests/images/product"
)

// What krew downloads is what a release has: files, checksums and programs of the manifest are
// compared with the files that were written.
func TestTheManifestOfThePluginNamesTheFilesOfTheRelease(t *testing.T) {
	platforms, err := product.ParsePlatforms("amd64,arm64")
	if err != nil {
		t.Fatal(err)
	}
	for downloads, where := range map[string]string{"": "", "https://files.example/v9.8.7/": "https://files.example/v9.8.7/"} {
		b := product.Builder{Repo: "../../..", Work: t.TempDir(), Version: "v9.8.7", Platforms: platforms}
		for _, p := range platforms {
			for _, name := range product.Plugins() {
				file := b.PluginFile(p.Arch, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(name+" for "+p.Arch), 0o755)); err != nil {
					t.Fatal(err)
				}
			}
		}
		dir := t.TempDir()
		names, err := writePlugins(b, dir, downloads)
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"kubectl-deviceshare-v9.8.7-linux-amd64.tar.gz", "kubectl-deviceshare-v9.8.7-linux-arm64.tar.gz", "deviceshare-v9.8.7.krew.yaml"}; !slices.Equal(names, want) {
			t.Fatalf("the files are %q, want %q", names, want)
		}
		text, err := os.ReadFile(filepath.Join(dir, "deviceshare-v9.8.7.krew.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var m plugin
		if err := yaml.UnmarshalStrict(text, &m); err != nil {
			t.Fatal(err)
		}
		if m.Metadata.Name != "deviceshare" || m.Spec.Version != "v9.8.7" || len(m.Spec.Platforms) != 2 || len(m.Spec.ShortDescription) > 80 {
			t.Errorf("the manifest is\n%s", text)
		}
		for i, p := range m.Spec.Platforms {
			arch := platforms[i].Arch
			if p.Selector.MatchLabels["arch"] != arch || p.Selector.MatchLabels["os"] != "linux" || p.URI != where+names[i] {
				t.Errorf("platform %d is %+v", i, p)
			}
			data, err := os.ReadFile(filepath.Join(dir, path.Base(p.URI)))
			if err != nil {
				t.Fatal(err)
			}
			if sum := fmt.Sprintf("%x", sha256.Sum256(data)); p.SHA256 != sum {
				t.Errorf("the sum of %s is %s, the manifest says %s", p.URI, sum, p.SHA256)
			}
			files := unpackChart(t, data)
			if files[p.Bin] != "kubectl-deviceshare for "+arch || files["kubectl-deviceshare-simulate"] == "" || files["LICENSE"] == "" {
				t.Errorf("%s holds %q", p.URI, files)
			}
		}
	}
}
