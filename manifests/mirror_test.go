// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// listedImages are the digests in the images.txt of a release by the image's name and tag. The
// tests of package release hold that file to what a release writes.
func listedImages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(read(t, "images/release/testdata/images.txt")) {
		name, rest, ok := strings.Cut(line, "@")
		digest, _, found := strings.Cut(rest, " ")
		if !ok || !found {
			t.Fatalf("line %q has no digest or no archive", line)
		}
		out[name] = digest
	}
	return out
}

// imagesIn are the values of all fields named image, wherever they are.
func imagesIn(tree any) []string {
	var out []string
	switch tree := tree.(type) {
	case map[string]any:
		for key, value := range tree {
			if image, ok := value.(string); ok && key == "image" {
				out = append(out, image)
			}
			out = append(out, imagesIn(value)...)
		}
	case []any:
		for _, value := range tree {
			out = append(out, imagesIn(value)...)
		}
	}
	return out
}

// digestValues are the values of the chart that have the digest of an image.
func digestValues() map[string]string {
	return map[string]string{"scheduler": "scheduler.image.digest", "device-plugin": "devicePlugin.image.digest",
		"webhook": "webhook.image.digest", "view": "view.page.image.digest"}
}

// With a mirror of what images.txt lists, nothing is pulled from anywhere else, and nothing but
// what the release has.
func TestAMirrorWithTheDigestsOfAReleaseIsEnough(t *testing.T) {
	const registry = "mirror.example.com/gpu/"
	listed := listedImages(t)
	for fips, suffix := range map[string]string{"off": "", "only": "-fips"} {
		v := values{"fips": fips, "image.registry": registry, "view.page.enabled": true, "unaskedDevices.policy": "deny", "placements.signed": "require",
			"autoscaling.enabled": true, "gpuOperator.enabled": true}
		want := map[string]bool{}
		for name, path := range digestValues() {
			digest := listed["docker.io/deviceshare/"+name+":v9.8.7"+suffix]
			if digest == "" {
				t.Fatalf("images.txt lacks %s%s: %q", name, suffix, slices.Collect(maps.Keys(listed)))
			}
			v[path], want[registry+"deviceshare/"+name+"@"+digest] = digest, true
		}
		text, err := renderIn(t, cluster(t, appsv1.Deployment{}), v)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, document := range strings.Split(text, "\n---") {
			var tree any
			if err := yaml.Unmarshal([]byte(document), &tree); err != nil {
				t.Fatal(err)
			}
			for _, image := range imagesIn(tree) {
				got[image] = true
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("fips %s: the images are %q, want %q", fips, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}
	if len(listed) != 2*len(digestValues()) {
		t.Errorf("the release has images that the chart does not know: %q", slices.Sorted(maps.Keys(listed)))
	}
}
