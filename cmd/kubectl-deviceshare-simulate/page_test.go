// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
	"deviceshare/view"
	"deviceshare/view/capture"
)

var update = flag.Bool("update", false, "write the page anew")

const (
	page     = "../../docs/simulate.md"
	planPage = "../../docs/plan.md"
)

// shown is a block of the page with commands and what they print, given a block with its file.
var (
	shown = regexp.MustCompile("(?ms)^<!-- run -->\n```\n(.*?)^```\n")
	plans = regexp.MustCompile("(?ms)^<!-- plan -->\n```\n(.*?)^```\n")
	files = regexp.MustCompile("(?ms)^<!-- file ([a-z.]+) -->\n```[a-z]*\n(.*?)^```\n")
)

const prompt = "$ kubectl deviceshare simulate "

// run runs the command as a user types it and returns what it prints.
func run(t testing.TB, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := rootCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	c.SetArgs(args)
	err := c.Execute()
	return out.String(), err
}

func quantity(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }

// node has two devices of 24 GiB in mode hami-core.
func node(name string) *corev1.Node {
	inv := sharing.Inventory{Node: name}
	for i := range 2 {
		inv.Devices = append(inv.Devices, sharing.Device{
			ID: sharing.DeviceID(fmt.Sprintf("GPU-%s-%d", name, i)), Index: i, Model: "NVIDIA A10", Memory: sharing.MiBs(24576),
			Cores: 100, MaxShares: 10, Healthy: true, Mode: sharing.HAMiCore, NUMA: -1,
		})
	}
	annotations, err := wire.NodeAnnotations(inv, 1)
	if err != nil {
		panic(err)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{"kubernetes.io/hostname": name}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{
				"cpu": quantity(16), "memory": quantity(64 << 30), "pods": quantity(110),
				wire.ResourceNumber: quantity(20), wire.ResourceMemory: quantity(2 * 24576), wire.ResourceCores: quantity(200),
			},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// running is a pod with memory of a device of a node.
func running(name, node string, device int, mib int64) *corev1.Pod {
	annotations, err := wire.PlacementAnnotations(sharing.Placement{Node: node, Containers: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{{
		Device: sharing.DeviceID(fmt.Sprintf("GPU-%s-%d", node, device)), Mode: sharing.HAMiCore, Memory: sharing.MiBs(mib),
	}}}}}, 1, 1700000000)
	if err != nil {
		panic(err)
	}
	annotations[wire.GroupName] = "podgroup-" + name
	amounts := corev1.ResourceList{wire.ResourceNumber: quantity(1), wire.ResourceMemory: quantity(mib)}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Annotations: annotations}}
	p.Spec = corev1.PodSpec{NodeName: node, SchedulerName: "volcano", Containers: []corev1.Container{{
		Name: "main", Resources: corev1.ResourceRequirements{Limits: amounts, Requests: amounts},
	}}}
	p.Status.Phase = corev1.PodRunning
	return p
}

// objects are the pages' cluster.
func objects() []any {
	return []any{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, node("node-1"), node("node-2"),
		running("notebook", "node-1", 0, 8192), running("infer", "node-2", 0, 12288), running("train", "node-2", 1, 24576),
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// write goes into an empty directory and writes the page's cluster and the files that it shows.
func write(t *testing.T, text string) {
	t.Helper()
	device, scheduler := readText(t, "../../config/default.yaml"), readText(t, "../../plugins/deviceshare/offline/shipped.conf")
	t.Chdir(t.TempDir())
	s := &capture.State{
		Taken: time.Date(2026, 1, 2, 3, 30, 0, 0, time.UTC), DeviceConfig: &device, Scheduling: &capture.Scheduling{Config: &scheduler},
	}
	for _, o := range objects() {
		s.Add(o)
	}
	s.Sort()
	f, err := os.Create("cluster.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := capture.Write(f, s); err != nil {
		t.Fatal(err)
	}
	for _, m := range files.FindAllStringSubmatch(text, -1) {
		if err := os.WriteFile(m[1], []byte(m[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestThePageShowsWhatTheCommandsPrint(t *testing.T) {
	path, err := filepath.Abs(page)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text, blocks := string(content), 0
	write(t, text)
	now := shown.ReplaceAllStringFunc(text, func(found string) string {
		blocks++
		block := shown.FindStringSubmatch(found)[1]
		want := printed(t, block)
		if want == "" || block != want && !*update {
			t.Errorf("%s shows, see -update:\n%s\nwant\n%s", page, block, want)
		}
		return strings.Replace(found, block, want, 1)
	})
	if blocks < 4 {
		t.Fatalf("only %d blocks were compared", blocks)
	}
	if *update {
		if err := os.WriteFile(path, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	flags := rootCommand(genericiooptions.IOStreams{}).Flags()
	flags.VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(text, "`--"+f.Name) && !strings.Contains(text, " --"+f.Name) {
			t.Errorf("%s does not name --%s", page, f.Name)
		}
	})
}

// printed runs the commands of a block and returns the block as it must be.
func printed(t *testing.T, block string) string {
	t.Helper()
	var outs []string
	for line := range strings.Lines(block) {
		arguments, ok := strings.CutPrefix(line, prompt)
		if !ok {
			continue
		}
		out, err := run(t, strings.Fields(arguments)...)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		outs = append(outs, line+out)
	}
	return strings.Join(outs, "\n")
}

// planned is the text of the pages' cluster with a pod that waits, for which others could move.
func planned(t *testing.T) string {
	t.Helper()
	device, scheduler := readText(t, "../../config/default.yaml"), readText(t, "../../plugins/deviceshare/offline/shipped.conf")
	s := &capture.State{
		Taken: time.Date(2026, 1, 2, 3, 30, 0, 0, time.UTC), DeviceConfig: &device, Scheduling: &capture.Scheduling{Config: &scheduler},
	}
	large := running("large", "node-1", 0, 1024)
	amounts := corev1.ResourceList{wire.ResourceNumber: quantity(2)}
	large.Spec.NodeName, large.Spec.Containers[0].Resources = "", corev1.ResourceRequirements{Limits: amounts, Requests: amounts}
	large.Status.Phase = corev1.PodPending
	for _, key := range wire.PlacementKeys() {
		delete(large.Annotations, key)
	}
	for _, o := range append(objects(), large) {
		if p, is := o.(*corev1.Pod); is && p != large {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: p.Name, Controller: ptr.To(true)}}
			p.Status.StartTime = &metav1.Time{Time: s.Taken.Add(-25 * time.Minute)}
		}
		s.Add(o)
	}
	for _, name := range []string{"notebook", "infer", "train", "large"} {
		s.Add(&schedulingv1beta1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "podgroup-" + name}, Spec: schedulingv1beta1.PodGroupSpec{MinMember: 1},
			Status: schedulingv1beta1.PodGroupStatus{Phase: schedulingv1beta1.PodGroupInqueue},
		})
	}
	s.Sort()
	var b strings.Builder
	if err := capture.Write(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// plan runs what "kubectl deviceshare plan" does with what a user types.
func plan(t *testing.T, cluster, line string) (string, error) {
	t.Helper()
	args := strings.Fields(line)
	if !strings.HasPrefix(args[0], "-") {
		args[0] = "default/" + args[0]
	}
	var out bytes.Buffer
	c := rootCommand(genericiooptions.IOStreams{In: strings.NewReader(cluster), Out: &out, ErrOut: &out})
	c.SetArgs(append([]string{"plan"}, args...))
	err := c.Execute()
	return out.String(), err
}

func TestThePageShowsThePlans(t *testing.T) {
	text, cluster, blocks := readText(t, planPage), planned(t), 0
	now := plans.ReplaceAllStringFunc(text, func(found string) string {
		blocks++
		block := plans.FindStringSubmatch(found)[1]
		line, _, _ := strings.Cut(block, "\n")
		out, err := plan(t, cluster, strings.TrimPrefix(line, "$ kubectl deviceshare plan "))
		if err != nil {
			t.Fatal(err)
		}
		want := line + "\n" + out
		if block != want && !*update {
			t.Errorf("%s shows, see -update:\n%s\nwant\n%s", planPage, block, want)
		}
		return strings.Replace(found, block, want, 1)
	})
	if blocks != 3 {
		t.Errorf("%d blocks were compared", blocks)
	}
	if *update {
		if err := os.WriteFile(planPage, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMistakesInPlansAreSaid(t *testing.T) {
	cluster := planned(t)
	for line, want := range map[string]string{
		"nobody":                "there is none: is the namespace right?",
		"train":                 "it does not wait for shared devices",
		"--devices 0":           "want a pod, a number of devices or a number of moves",
		"large --devices 1":     "want a pod, a number of devices or a number of moves",
		"--moves 1 --output no": `unknown output "no"`,
	} {
		if _, err := plan(t, cluster, line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
	if _, err := plan(t, "", "large"); err == nil {
		t.Error("no capture is no mistake")
	}
}

func TestProgramsReadTheSameAnswer(t *testing.T) {
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	write(t, string(content))
	var answers [2]view.WhatIf
	for i := range answers {
		text, err := run(t, "cluster.jsonl", "--add", "pods.yaml", "-o", "json")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(text), &answers[i]); err != nil {
			t.Fatal(err)
		}
	}
	w := answers[0]
	if fmt.Sprint(answers[1]) != fmt.Sprint(w) {
		t.Errorf("asked again: %+v, and before %+v", answers[1], w)
	}
	if w.Before.Placed != 3 || w.After.Placed != 5 || len(w.Pods) != 2 || len(w.Notes) > 0 {
		t.Errorf("got %+v", w)
	}
}

func TestMistakesOfUsersAreSaid(t *testing.T) {
	write(t, "")
	for line, want := range map[string]string{
		"cluster.jsonl -o xml":                           `unknown output "xml"`,
		"cluster.jsonl --policy best":                    `unknown policy "best"`,
		"cluster.jsonl --policy binpack --policy spread": "with --trace only",
		"cluster.jsonl --series x":                       "give both",
		"cluster.jsonl --trace t.csv --add pods.yaml":    "--trace does not go with",
		"- --add -":                                       "one file only",
		"cluster.jsonl --remove node-9":                   "the captured cluster has no such node",
		"none.jsonl":                                      "read the capture",
		"cluster.jsonl --add none.yaml":                   "read the pods to add",
		"cluster.jsonl --scheduler-config none.conf":      "read the scheduler's configuration",
		"cluster.jsonl --remove node-1 --scheduler-name=": "no name of a scheduler",
		"": "accepts 1 arg",
	} {
		if _, err := run(t, strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error that says %q", line, err, want)
		}
	}
}
