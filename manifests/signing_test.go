// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/base64"
	"strings"
	"testing"

	"deviceshare/config/signing"
	"deviceshare/sharing/wire"
)

// document is the rendered document that says all of the words.
func document(t *testing.T, text string, words ...string) string {
	t.Helper()
next:
	for _, d := range strings.Split(text, "\n---") {
		for _, w := range words {
			if !strings.Contains(d, w) {
				continue next
			}
		}
		return d
	}
	t.Fatalf("nothing says %q", words)
	return ""
}

func TestTheKeysThatTheChartMakesFitTogether(t *testing.T) {
	text := render(t, values{"placements.signed": "require"})
	_, encoded, _ := strings.Cut(document(t, text, "kind: Secret", "name: deviceshare-signing-key\n"), "signing.key: ")
	encoded, _, _ = strings.Cut(encoded, "\n")
	private, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	key, err := signing.ParseKey(private)
	if err != nil {
		t.Fatal(err)
	}
	public := document(t, text, "kind: ConfigMap", "name: deviceshare-signing-keys")
	pem := public[strings.Index(public, "-----BEGIN"):]
	keys, err := signing.ParsePublicKeys([]byte(strings.ReplaceAll(pem, "\n    ", "\n")))
	if err != nil || len(keys) != 1 {
		t.Fatalf("the public keys are %v (%v)\n%s", keys, err, public)
	}
	what := wire.Signed{Owner: "uid", Node: "n", Placement: "{}"}
	if got := key.Sign(what).Check(keys, what); got != wire.Genuine {
		t.Errorf("the verdict is %d", got)
	}
}

func TestWhoGetsWhichKey(t *testing.T) {
	for signed, want := range map[string]struct{ private, public bool }{"off": {}, "sign": {private: true}, "require": {private: true, public: true}} {
		text := render(t, values{"placements.signed": signed})
		scheduler := document(t, text, "kind: Deployment", "name: deviceshare-scheduler\n")
		plugin := document(t, text, "kind: DaemonSet", "name: deviceshare-device-plugin\n")
		if got := strings.Contains(scheduler+"\n", "secretName: deviceshare-signing-key\n") && strings.Contains(scheduler, "--deviceshare-signing-key="); got != want.private {
			t.Errorf("%s: the scheduler has the private key: %v", signed, got)
		}
		if got := strings.Contains(plugin, "name: deviceshare-signing-keys}") && strings.Contains(plugin, "--placement-keys="); got != want.public {
			t.Errorf("%s: the device plugin has the public keys: %v", signed, got)
		}
		if strings.Contains(plugin, "secret") {
			t.Errorf("%s: the device plugin mounts a Secret", signed)
		}
	}
}
