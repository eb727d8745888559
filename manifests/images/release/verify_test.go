// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"deviceshare/manifests/images/product"
)

const installPage = "../../../docs/install.md"

// documentedCommands are the commands by which docs/install.md verifies a release, and by which it
// changes a byte.
func documentedCommands(t *testing.T) (verify, change string) {
	t.Helper()
	page, err := os.ReadFile(installPage)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)### Verify a release\n.*?\n```\n(.*?)```\n\nAfter `(.*?)`").FindStringSubmatch(string(page))
	if found == nil {
		t.Fatalf("%s does not say how to verify a release", installPage)
	}
	return found[1], found[2]
}

// requireOpenSSL installs Debian's package where it is missing.
func requireOpenSSL(t *testing.T) {
	t.Helper()
	const missing = "openssl is missing: install it (on Debian: apt-get install openssl)"
	if _, err := exec.LookPath("openssl"); err == nil {
		return
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		t.Skip(missing)
	}
	install := "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 install -y --no-install-recommends openssl"
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", install).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", missing, err, out)
	}
}

// shell runs commands in a directory, as somebody who types them.
func shell(t *testing.T, dir, commands string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", commands)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// makeKey makes a throw-away key pair.
func makeKey(t *testing.T, options string) keyPair {
	t.Helper()
	requireOpenSSL(t)
	dir := t.TempDir()
	if out, err := shell(t, dir, "openssl genpkey "+options+" -out key && openssl pkey -in key -pubout -out pub"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return keyPair{filepath.Join(dir, "key"), filepath.Join(dir, "pub")}
}

// keyOptions make the keys that sign releases.
func keyOptions() map[string]string {
	return map[string]string{"ECDSA": "-algorithm EC -pkeyopt ec_paramgen_curve:P-256", "Ed25519": "-algorithm ed25519"}
}

// keyPair are the paths of the two parts of a key.
type keyPair struct{ private, public string }

// pretendBuild is what a build leaves that a signed release looks at: images with digests, and a
// program, which is this one.
func pretendBuild(t *testing.T) (product.Builder, []product.Written) {
	t.Helper()
	b := product.Builder{Work: t.TempDir(), Version: "v9.8.7", FIPS: "v1.0.0", Platforms: product.Platforms()}
	var written []product.Written
	for _, p := range product.Products() {
		written = append(written, product.Written{Product: p, Name: "x/" + p.Name + ":v9.8.7", Digest: v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("a", 64)}})
	}
	program := b.ProgramFile(b.Platforms[0].Arch, written[0].Product)
	self, err := os.Executable()
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(program), 0o755), os.Symlink(self, program)); err != nil {
		t.Fatal(err)
	}
	return b, written
}

// sealed makes a small release of a chart, signs it, and puts the public key beside it.
func sealed(t *testing.T, keys keyPair, chart string, source Source) string {
	t.Helper()
	b, written := pretendBuild(t)
	key, err := ReadKey(keys.private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := map[string]string{"images.txt": string(listImages(written, b.Version)), "deviceshare-9.8.7.tgz": chart, "deviceshare-v9.8.7.yaml": "the manifest\n"}
	put(t, dir, files)
	if err := writeSums(dir, slices.Sorted(maps.Keys(files))); err != nil {
		t.Fatal(err)
	}
	o := Options{Downloads: "https://files.example", Created: time.Unix(1e9, 0), Seal: &Seal{Key: key, Source: source}}
	names, err := sealRelease(b, dir, o, written)
	if want := []string{"SHA256SUMS.sig", "provenance.intoto.jsonl"}; err != nil || !slices.Equal(names, want) {
		t.Fatalf("the files are %q (%v), want %q", names, err, want)
	}
	public, err := os.ReadFile(keys.public)
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, map[string]string{"release.pub": string(public)})
	return dir
}

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(text)
	}
	return out
}

// requireVerdict runs the documented commands on a copy of some files.
func requireVerdict(t *testing.T, what string, files map[string]string, good bool) {
	t.Helper()
	verify, _ := documentedCommands(t)
	dir := t.TempDir()
	put(t, dir, files)
	out, err := shell(t, dir, verify)
	if (err == nil) != good || strings.HasSuffix(out, "\nverified\n") != good {
		t.Errorf("%s: %v\n%s", what, err, out)
	}
}

// places are the bytes of a file that the test changes, the last one before its line's end.
func places(name, text string) []int {
	out := []int{0, len(text) / 2, len(text) - 2}
	if name == provenanceFile {
		for i := 1; i < 70; i += 6 {
			out = append(out, i)
		}
		for i := len(text) - 120; i < len(text)-1; i += 13 {
			out = append(out, i)
		}
	}
	return out
}

func TestAReleaseIsVerifiedByTheDocumentedCommandsUntilAByteChanges(t *testing.T) {
	for kind, options := range keyOptions() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			files := filesOf(t, sealed(t, makeKey(t, options), "the chart", Source{}))
			requireVerdict(t, "the release", files, true)
			for name, text := range files {
				for _, i := range places(name, text) {
					changed := []byte(text)
					changed[i] ^= 1
					files[name] = string(changed)
					requireVerdict(t, fmt.Sprintf("byte %d of %s is another", i, name), files, false)
				}
				delete(files, name)
				requireVerdict(t, "without "+name, files, false)
				files[name] = text
			}
		})
	}
}

// What is verified is all of one release, and by the key that the reader has.
func TestPartsOfDifferentReleasesAreNotVerified(t *testing.T) {
	keys := makeKey(t, keyOptions()["ECDSA"])
	mine, later := filesOf(t, sealed(t, keys, "the chart", Source{})), filesOf(t, sealed(t, keys, "a later chart", Source{}))
	foreign := filesOf(t, sealed(t, makeKey(t, keyOptions()["ECDSA"]), "a foreign chart", Source{}))
	all := slices.Collect(maps.Keys(mine))
	for what, tt := range map[string]struct {
		from  map[string]string
		names []string
		good  bool
	}{
		"all of a later release":           {later, all, true},
		"a later chart":                    {later, []string{"deviceshare-9.8.7.tgz"}, false},
		"later checksums":                  {later, []string{"SHA256SUMS", "SHA256SUMS.sig"}, false},
		"a later provenance":               {later, []string{provenanceFile}, false},
		"a later chart and its checksums":  {later, []string{"deviceshare-9.8.7.tgz", "SHA256SUMS", "SHA256SUMS.sig"}, false},
		"a release signed by somebody":     {foreign, slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == "release.pub" }), false},
		"a provenance signed by somebody":  {foreign, []string{provenanceFile}, false},
		"a second envelope, of the signer": {map[string]string{provenanceFile: mine[provenanceFile] + later[provenanceFile]}, []string{provenanceFile}, false},
	} {
		mixed := maps.Clone(mine)
		for _, name := range tt.names {
			mixed[name] = tt.from[name]
		}
		requireVerdict(t, what, mixed, tt.good)
	}
}

func TestTheDocumentedChangeIsFound(t *testing.T) {
	verify, change := documentedCommands(t)
	dir := sealed(t, makeKey(t, keyOptions()["Ed25519"]), "the chart", Source{})
	out, err := shell(t, dir, change+" && "+verify)
	if err == nil || !strings.Contains(out, "images.txt: FAILED\n") {
		t.Errorf("%v\n%s", err, out)
	}
}
