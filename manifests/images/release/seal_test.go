// SPDX-License-Identifier: Apache-2.0

package release

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// decodeProvenance is the statement in the envelope of a release, as anybody's JSON.
func decodeProvenance(t *testing.T, dir string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "provenance.intoto.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var envelope struct{ PayloadType, Payload string }
	if err := json.Unmarshal(text, &envelope); err != nil {
		t.Fatal(err)
	}
	payload, err := base64.StdEncoding.DecodeString(envelope.Payload)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(payload, &out); err != nil {
		t.Fatal(err)
	}
	if envelope.PayloadType != "application/vnd.in-toto+json" || out["_type"] != "https://in-toto.io/Statement/v1" || out["predicateType"] != "https://slsa.dev/provenance/v1" {
		t.Errorf("the types are %q, %q, %q", envelope.PayloadType, out["_type"], out["predicateType"])
	}
	return out
}

func TestTheProvenanceNamesEveryFileAndImage(t *testing.T) {
	dir := sealed(t, makeKey(t, keyOptions()["Ed25519"]), "the chart", Source{})
	want, got := map[string]string{}, map[string]string{}
	for _, name := range []string{"deviceshare-9.8.7.tgz", "deviceshare-v9.8.7.yaml", "images.txt", "SHA256SUMS"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want[name] = fmt.Sprintf("%x", sha256.Sum256(text))
	}
	for _, name := range []string{"scheduler", "webhook", "view", "device-plugin"} {
		want["x/"+name+":v9.8.7"] = strings.Repeat("a", 64)
	}
	for _, s := range decodeProvenance(t, dir)["subject"].([]any) {
		subject := s.(map[string]any)
		got[subject["name"].(string)] = subject["digest"].(map[string]any)["sha256"].(string)
	}
	if !maps.Equal(got, want) {
		t.Errorf("the subjects are %q, want %q", got, want)
	}
}

func TestTheProvenanceSaysOfWhatAndHowTheReleaseWasBuilt(t *testing.T) {
	for _, isDirty := range []bool{false, true} {
		commit := strings.Repeat("c", 40)
		dir := sealed(t, makeKey(t, keyOptions()["Ed25519"]), "the chart", Source{Commit: commit, IsDirty: isDirty})
		predicate := decodeProvenance(t, dir)["predicate"].(map[string]any)
		got := predicate["buildDefinition"].(map[string]any)
		want := map[string]any{
			"buildType": "urn:deviceshare:make-release:v1",
			"externalParameters": map[string]any{"VERSION": "v9.8.7", "ARCH": "amd64,arm64", "FIPS": "v1.0.0", "DOWNLOADS": "https://files.example",
				"SOURCE_DATE_EPOCH": "1000000000"},
			"internalParameters": map[string]any{"goVersion": runtime.Version()}, // of the program that stands for the product
			"resolvedDependencies": []any{map[string]any{"name": "deviceshare", "digest": map[string]any{"gitCommit": commit},
				"annotations": map[string]any{"dirty": isDirty}}},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the build is %v, want %v", got, want)
		}
		if id := predicate["runDetails"].(map[string]any)["builder"].(map[string]any)["id"]; id == "" {
			t.Error("the builder has no id, which SLSA demands")
		}
	}
}

func TestTheSameKeySignsTheSameReleaseWithTheSameBytes(t *testing.T) {
	for kind, options := range keyOptions() {
		keys := makeKey(t, options)
		if one, two := filesOf(t, sealed(t, keys, "the chart", Source{})), filesOf(t, sealed(t, keys, "the chart", Source{})); !maps.Equal(one, two) {
			t.Errorf("%s: two releases differ:\n%q\n%q", kind, one, two)
		}
	}
}

func TestOnlyAPrivateKeyThatSignsReleasesIsRead(t *testing.T) {
	requireOpenSSL(t)
	const p256 = "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256"
	for name, tt := range map[string]struct{ make, want string }{
		"ECDSA P-256":                        {p256 + " -out key", ""},
		"ECDSA P-256 of an older openssl":    {"openssl ecparam -name prime256v1 -genkey -out key", ""},
		"Ed25519":                            {"openssl genpkey -algorithm ed25519 -out key", ""},
		"ECDSA P-384":                        {"openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384 -out key", "want an Ed25519 key, or an ECDSA key of curve P-256"},
		"RSA":                                {"openssl genpkey -algorithm RSA -out key", "want an Ed25519 key, or an ECDSA key of curve P-256"},
		"X25519, which does not sign":        {"openssl genpkey -algorithm x25519 -out key", "want an Ed25519 key, or an ECDSA key of curve P-256"},
		"an encrypted key":                   {p256 + " | openssl pkey -aes256 -passout pass:x -out key", "it is encrypted"},
		"an encrypted key of older openssl":  {"openssl ecparam -name prime256v1 -genkey | openssl ec -aes256 -passout pass:x -out key", "it is encrypted"},
		"the key of cosign":                  {"printf -- '-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n' > key", "it is encrypted"},
		"a public key":                       {p256 + " | openssl pkey -pubout -out key", "it is a PUBLIC KEY: want a PRIVATE KEY"},
		"a certificate":                      {"openssl req -x509 -newkey ed25519 -nodes -keyout other -subj /CN=x -out key", "it is a CERTIFICATE"},
		"a key that is cut off":              {"printf -- '-----BEGIN PRIVATE KEY-----\nMIGH\n-----END PRIVATE KEY-----\n' > key", "decode the private key"},
		"parameters without a key":           {"openssl ecparam -name prime256v1 -out key", "it has no key in PEM"},
		"a key in DER":                       {p256 + " -outform DER -out key", "it has no key in PEM"},
		"an empty file":                      {": > key", "it has no key in PEM"},
		"a folder":                           {"mkdir key", "is a directory"},
		"nothing, where there is no key yet": {"true", "no such file"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "key")
		if out, err := shell(t, dir, tt.make); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		_, err := ReadKey(path)
		if (err == nil) != (tt.want == "") || (err != nil && !(strings.Contains(err.Error(), tt.want) && strings.Contains(err.Error(), path))) {
			t.Errorf("%s: %v, want %q and the path", name, err, tt.want)
		}
	}
}
