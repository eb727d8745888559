// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	spdxjson "github.com/spdx/tools-golang/json"
	"sigs.k8s.io/yaml"

	"deviceshare/manifests/images/product"
)

func TestVersionsAreSemantic(t *testing.T) {
	for version, good := range map[string]bool{
		"v0.2.0": true, "v1.10.3-rc.1": true,
		"0.2.0": false, "v0.2": false, "v01.2.0": false, "v1.0.0+x": false, "v1.0.0-": false, "": false, "latest": false,
	} {
		if err := checkVersion(version); (err == nil) != good {
			t.Errorf("version %q: %v", version, err)
		}
	}
}

// unpackChart returns the files of a packaged chart.
func unpackChart(t *testing.T, data []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for tr := tar.NewReader(zip); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			files[h.Name] = string(text)
		}
	}
}

func TestTheChartOfAReleaseNamesItsVersionEverywhere(t *testing.T) {
	m := manifests{dir: "../..", version: "v9.8.7-rc.1"}
	data, err := m.packChart()
	if err != nil {
		t.Fatal(err)
	}
	files := unpackChart(t, data)
	var chart struct{ Name, Version, AppVersion string }
	if err := yaml.Unmarshal([]byte(files["deviceshare/Chart.yaml"]), &chart); err != nil {
		t.Fatal(err)
	}
	if chart.Name != "deviceshare" || chart.Version != "9.8.7-rc.1" || chart.AppVersion != "v9.8.7-rc.1" {
		t.Errorf("the chart says %+v", chart)
	}
	var values struct{ Image struct{ Tag string } }
	if err := yaml.Unmarshal([]byte(files["deviceshare/values.yaml"]), &values); err != nil || values.Image.Tag != "v9.8.7-rc.1" {
		t.Errorf("the values say %+v (%v)", values, err)
	}
	current, err := m.chartVersion()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 8 {
		t.Errorf("the chart has %d files only", len(files))
	}
	for name, text := range files {
		if strings.Contains(text, current) {
			t.Errorf("%s names %s, the version of the working copy", name, current)
		}
	}
	if again, err := m.packChart(); err != nil || !bytes.Equal(data, again) {
		t.Errorf("two packages of the same chart differ (%v)", err)
	}
}

func TestThePlainManifestOfAReleaseNamesItsImages(t *testing.T) {
	m := manifests{dir: "../..", version: "v9.8.7"}
	text, err := m.renderPlain()
	if err != nil {
		t.Fatal(err)
	}
	images := 0
	for line := range strings.Lines(string(text)) {
		if _, image, ok := strings.Cut(strings.TrimSpace(line), "image: "); ok {
			images++
			if !strings.HasSuffix(image, ":v9.8.7") {
				t.Errorf("an image is %s", image)
			}
		}
	}
	if images != 6 { // the keeper is the device plugin, two Jobs are the webhook
		t.Errorf("the manifest has %d images, want 6", images)
	}
}

func TestAChartWithoutAPlaceForTheVersionIsRefused(t *testing.T) {
	for name, tt := range map[string]struct{ chart, values, want string }{
		"another tag":   {"version: 0.1.0\nappVersion: v0.1.0\n", "image:\n  tag: v0.0.9\n", "values.yaml"},
		"no version":    {"appVersion: v0.1.0\n", "image:\n  tag: v0.1.0\n", "Chart.yaml"},
		"no appVersion": {"version: 0.1.0\n", "", "appVersion"},
		"not YAML":      {"version: [", "", "read the chart"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := errors.Join(os.Mkdir(filepath.Join(dir, "chart"), 0o755), os.WriteFile(filepath.Join(dir, "chart/Chart.yaml"), []byte(tt.chart), 0o644),
				os.WriteFile(filepath.Join(dir, "chart/values.yaml"), []byte(tt.values), 0o644)); err != nil {
				t.Fatal(err)
			}
			if _, err := (manifests{dir: dir, version: "v9.8.7"}).packChart(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// built is what a build leaves: every program, and the hook, is the command of this module, the
// base has the packages given.
func built(t *testing.T, packages map[string]string) (product.Builder, []product.Written) {
	t.Helper()
	b := product.Builder{Work: t.TempDir(), Version: "v9.8.7", Revision: "abc"}
	command := filepath.Join(t.TempDir(), "images")
	if out, err := exec.Command("go", "build", "-o", command, "..").CombinedOutput(); err != nil {
		t.Fatalf("build a program to look into: %v\n%s", err, out)
	}
	var written []product.Written
	for _, p := range product.Products() {
		w := product.Written{Product: p, Name: "x/" + p.Name + ":v9.8.7", Digest: v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("a", 64)}, Sizes: map[string]int64{"amd64": 1, "arm64": 1}}
		for arch := range w.Sizes {
			program := b.ProgramFile(arch, p)
			if err := errors.Join(os.MkdirAll(filepath.Dir(program), 0o755), os.Symlink(command, program)); err != nil {
				t.Fatal(err)
			}
		}
		written = append(written, w)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		for _, hook := range b.HookFiles(arch, product.Product{}) {
			if err := os.Symlink(command, hook); err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range packages {
			dir := filepath.Join(b.BaseDir(arch), "var/lib/dpkg/status.d")
			text = strings.ReplaceAll(text, "ARCH", arch)
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b, written
}

func TestTheContentsListModulesAndPackagesOfEveryImage(t *testing.T) {
	b, written := built(t, map[string]string{"libc6": "Package: libc6\nArchitecture: ARCH\nVersion: 2.36-9+deb12u1\n"})
	text, err := spdxDocument(b, written, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := spdxDocument(b, written, time.Unix(0, 0)); err != nil || !bytes.Equal(text, again) {
		t.Errorf("two lists of the same contents differ (%v)", err)
	}
	doc, err := spdxjson.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if doc.SPDXVersion != "SPDX-2.3" || doc.CreationInfo.Created != "1970-01-01T00:00:00Z" {
		t.Errorf("the document is %s of %+v", doc.SPDXVersion, doc.CreationInfo)
	}
	names := map[string]string{"SPDXRef-DOCUMENT": "DOCUMENT"} // by identifier
	for _, p := range doc.Packages {
		id := "SPDXRef-" + string(p.PackageSPDXIdentifier)
		if names[id] != "" {
			t.Errorf("%s is there twice", id)
		}
		names[id] = p.PackageName + "@" + p.PackageVersion
	}
	relations := map[string]int{}
	for _, r := range doc.Relationships {
		a, b := names["SPDXRef-"+string(r.RefA.ElementRefID)], names["SPDXRef-"+string(r.RefB.ElementRefID)]
		if a == "" || b == "" {
			t.Errorf("%v %s %v names what is not there", r.RefA, r.Relationship, r.RefB)
		}
		relations[a+" "+r.Relationship+" "+b]++
	}
	for relation, want := range map[string]int{
		"DOCUMENT DESCRIBES x/scheduler:v9.8.7@v9.8.7":                                      1,
		"x/device-plugin:v9.8.7@v9.8.7 CONTAINS libc6@2.36-9+deb12u1":                       2, // of two architectures
		"x/webhook:v9.8.7@v9.8.7 CONTAINS libc6@2.36-9+deb12u1":                             0,
		"x/webhook:v9.8.7@v9.8.7 CONTAINS github.com/google/go-containerregistry@v0.20.6":   1,
		"x/scheduler:v9.8.7@v9.8.7 CONTAINS github.com/google/go-containerregistry@v0.20.6": 1,
	} {
		if relations[relation] != want {
			t.Errorf("%q is there %d times, want %d", relation, relations[relation], want)
		}
	}
	if !strings.Contains(string(text), `"pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=arm64"`) {
		t.Error("the package's URL is not there, or not escaped")
	}
}

func TestContentsThatCannotBeReadAreAnError(t *testing.T) {
	b, written := built(t, map[string]string{"libc6": "Package: libc6\n"})
	if _, err := spdxDocument(b, written, time.Unix(0, 0)); err == nil || !strings.Contains(err.Error(), "status.d/libc6 lacks") {
		t.Errorf("a package without a version: %v", err)
	}
	if err := os.Remove(b.ProgramFile("amd64", written[0].Product)); err != nil {
		t.Fatal(err)
	}
	if _, err := spdxDocument(b, written, time.Unix(0, 0)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
}

func TestTheChecksumsNameEveryFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("abc"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeSums(dir, []string{"a"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if want := "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n"; err != nil || string(text) != want {
		t.Errorf("got %q (%v), want %q", text, err, want)
	}
	if err := writeSums(dir, []string{"b"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// The tests of the chart take the list from the same file.
func TestTheListOfImagesNamesEachWithItsDigestAndArchive(t *testing.T) {
	var written []product.Written
	for _, fips := range []string{"", "v1.0.0"} {
		for _, p := range product.Products() {
			p.FIPS = fips
			written = append(written, product.Written{Product: p, Name: "docker.io/deviceshare/" + p.Name + ":" + p.Tag("v9.8.7"),
				Digest: v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%064x", len(written)+1)}})
		}
	}
	want, err := os.ReadFile("testdata/images.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := listImages(written, "v9.8.7"); !bytes.Equal(got, want) {
		t.Errorf("%s\nwant %s", got, want)
	}
}
