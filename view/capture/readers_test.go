// SPDX-License-Identifier: Apache-2.0

package capture_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/request"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/wire"
	"deviceshare/view/capture"
)

// wireKeys are the annotations that package wire declares, read from its source, so that a new one
// is among them.
func wireKeys(t *testing.T) []string {
	t.Helper()
	isKey := regexp.MustCompile(`^[a-z0-9.]+\.[a-z]+/[a-z0-9-]+$`)
	var keys []string
	files, err := filepath.Glob("../../sharing/wire/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no source of package wire: %v", err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for _, value := range spec.Values {
				if l, ok := value.(*ast.BasicLit); ok && l.Kind == token.STRING {
					if text, err := strconv.Unquote(l.Value); err == nil && isKey.MatchString(text) {
						keys = append(keys, text)
					}
				}
			}
			return true
		})
	}
	slices.Sort(keys)
	if keys = slices.Compact(keys); len(keys) < 20 || !slices.Contains(keys, wire.UserNUMA) {
		t.Fatalf("found the keys %q", keys)
	}
	return keys
}

// A view of a capture has to say what the scheduler says of the cluster. The test asks each reader
// with each key that exists whether the key matters to it, and takes no list of any of them.
func TestACaptureKeepsWhateverTheReadersOfPodsAndNodesRead(t *testing.T) {
	for _, key := range wireKeys(t) {
		for _, value := range []string{"", "?", "even", "single", "spread", "mig", "GPU-0", "group", "never"} {
			pod := askingPod()
			before := readPod(t, pod)
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
			after := readPod(t, pod)
			kept, ok := capture.Trim(pod)
			if !ok {
				t.Fatal("a pod with devices is not kept")
			}
			if got := readPod(t, kept.(*corev1.Pod)); after != before && got != after {
				t.Errorf("%s: %q matters to who reads the pod, and a capture forgets it:\n%s\nwant\n%s", key, value, got, after)
			}
			node := publishingNode(t)
			before = readNode(node)
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value)
			after = readNode(node)
			kept, _ = capture.Trim(node)
			if got := readNode(kept.(*corev1.Node)); after != before && got != after {
				t.Errorf("%s: %q matters to who reads the node, and a capture forgets it:\n%s\nwant\n%s", key, value, got, after)
			}
		}
	}
}

// askingPod wants what only its annotations tell apart, so that each of them matters.
func askingPod() *corev1.Pod {
	user := int64(7)
	restart := corev1.ContainerRestartPolicyAlways
	limits := corev1.ResourceList{wire.ResourceNumber: resource.MustParse("2"), wire.ResourceMemory: resource.MustParse("1000")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "pod", UID: "uid", Annotations: map[string]string{wire.UserGroupPolicy: wire.GroupSpread, wire.PodNode: "node"},
		},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{RunAsUser: &user},
			InitContainers:  []corev1.Container{{Name: "sidecar", RestartPolicy: &restart, Resources: corev1.ResourceRequirements{Requests: limits}}},
			Containers:      []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits}}},
		},
	}
}

func publishingNode(t *testing.T) *corev1.Node {
	t.Helper()
	annotations, err := wire.NodeAnnotations(sharing.Inventory{Node: "node", Devices: []sharing.Device{sharingtest.Device(0, "A100-40", sharing.HAMiCore)}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Annotations: annotations}}
}

// readPod is all that is read from a pod, as a text.
func readPod(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	names := podspec.DefaultNames()
	neutral := corepod.Read(pod)
	neutral.Annotations = nil
	said := fmt.Sprintf("%+v %t", neutral, corepod.Asks(pod, names))
	neutral.Annotations = pod.Annotations
	asked, mistakes := request.Rules{Names: names, Factor: 1}.Read(&neutral)
	near, unreadable := request.Neighbours(&neutral)
	asked.Neighbours = nil
	placed, found, err := wire.ReadPlacement(pod.Annotations, corepod.Refs(pod, names), nil, 1)
	return fmt.Sprintf("%s\n%+v %v\n%+v %t %v\n%+v %v", said, asked, mistakes, placed, found, err, *near, unreadable)
}

func readNode(n *corev1.Node) string {
	inv, found, err := wire.ReadNode(n.Annotations, n.Name, 1)
	config, configErr := wire.DecodeConfig(n.Annotations[wire.NodeConfig])
	text, _ := json.Marshal(inv)
	return fmt.Sprintf("%s %t %v\n%+v %v", text, found, err, config, configErr)
}
