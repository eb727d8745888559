// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

func parse(args ...string) (*options, error) {
	var o options
	flags := pflag.NewFlagSet("webhook", pflag.ContinueOnError)
	o.addFlags(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	return &o, o.validateFlags()
}

func TestCommandLinesAndWhatIsWrongWithThem(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string // parts of the message; nil: accepted
	}{
		"as the chart has it":            {[]string{"--certificate-dir=/c"}, nil},
		"two schedulers":                 {[]string{"--certificate-dir=/c", "--scheduler-name=a,b"}, nil},
		"a device configuration":         {[]string{"--certificate-dir=/c", "--device-config=ns/name"}, nil},
		"no certificate":                 {nil, []string{"--certificate-dir must not be empty"}},
		"a configuration of no place":    {[]string{"--certificate-dir=/c", "--device-config=name"}, []string{"write namespace/name"}},
		"a configuration too deep":       {[]string{"--certificate-dir=/c", "--device-config=a/b/c"}, []string{"write namespace/name"}},
		"another writer":                 {[]string{"--certificate-dir=/c", "--placement-writer=a", "--placement-writer=b"}, nil},
		"a writer without a name":        {[]string{"--certificate-dir=/c", "--placement-writer=a,,b"}, []string{"--placement-writer"}},
		"devices nobody asked for":       {[]string{"--certificate-dir=/c", "--unasked-devices=void", "--asked-by=nvidia.com/gpu"}, nil},
		"a policy that there is not":     {[]string{"--certificate-dir=/c", "--unasked-devices=forbid"}, []string{"--unasked-devices", "write allow, void or deny"}},
		"several mistakes, all reported": {[]string{"--port=0", "--scheduler-name="}, []string{"--certificate-dir", "--port=0", "--scheduler-name"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parse(tt.args...)
			if (err == nil) != (tt.want == nil) {
				t.Fatalf("got %v", err)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("message %q lacks %q", err, part)
				}
			}
		})
	}
}

func TestTheManifestsCommandLineIsAccepted(t *testing.T) {
	text, err := os.ReadFile("../../manifests/install/deviceshare.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var d appsv1.Deployment
		if err := yaml.Unmarshal([]byte(document), &d); err != nil || d.Kind != "Deployment" || d.Name != "deviceshare-webhook" {
			continue
		}
		found = true
		o, err := parse(d.Spec.Template.Spec.Containers[0].Args...)
		if err != nil {
			t.Fatal(err)
		}
		if want := defaultWriters(); len(o.writers) != len(want) || slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(o.writers, w) }) {
			t.Errorf("writers %q, the flag's default is %q", o.writers, want)
		}
		if o.certificateDir != "/certificate" || o.healthAddress == "" {
			t.Errorf("options %+v", o)
		}
	}
	if !found {
		t.Error("no Deployment of the webhook in the manifests")
	}
}
