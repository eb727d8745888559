// SPDX-License-Identifier: Apache-2.0

// Package demo shows the main job as a story: pods share the GPUs of a real cluster. After
// each scene a picture in text shows who holds what. Every claim of the story is checked when
// it is made; the first one that is wrong ends the demo with an error.
package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/picture"
	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
)

// Topology is the fake GPUs of the demo's one real node. The last can be switched to
// partitions without a reset.
const Topology = `fakegpu 1
driver 580.95.05 cuda 13.0
gpu model="NVIDIA A100-SXM4-80GB" memory=81920MiB cc=8.0 numa=0 mig=capable pci=0000:07:00.0 sms=108
gpu model="NVIDIA A100-SXM4-80GB" memory=81920MiB cc=8.0 numa=0 mig=capable pci=0000:0f:00.0 sms=108
gpu model="NVIDIA H100 80GB HBM3" memory=81559MiB cc=9.0 numa=1 mig=capable pci=0000:47:00.0 sms=132
`

// sceneLimit ends a scene that hangs; on two quiet cores the longest takes a quarter of a minute.
const sceneLimit = 8 * time.Minute

// story tells one scene after the other.
type story struct {
	cluster *sandbox.Cluster
	user    *user.User
	out     io.Writer
	begin   time.Time
}

// Run tells the story on a cluster that was started with Topology. It returns
// the first claim that did not hold.
func Run(ctx context.Context, c *sandbox.Cluster, out io.Writer) error {
	u, err := user.New(ctx, c.Client(), "demo")
	if err != nil {
		return err
	}
	s := &story{cluster: c, user: u, out: out, begin: time.Now()}
	scenes := []struct {
		title string
		run   func(context.Context) error
	}{
		{"Three pods share one device", s.sharing},
		{"A container that wants more than its share is refused, its neighbour goes on", s.greed},
		{"Two containers keep a device busy, each for its share of the time, and each sees only itself; one alone borrows", s.compute},
		{"A pod that does not fit waits, says why, and starts when there is room", s.waiting},
		{"Binpack fills a device, spread uses another one: each pod may choose", s.policies},
		{"The same among nodes: binpack fills one, spread takes the other", s.nodes},
		{"A whole device comes without any interception", s.whole},
		{"The node's configuration is edited: three devices, three modes, and nothing restarts", s.modes},
		{"A pod asks for memory in mode mig: the partition is made when it starts", s.partition},
		{"Another geometry by editing the ConfigMap; who runs keeps its partition", s.geometry},
		{"A pod that names no mode is placed by score", s.anyMode},
		{"A pod that would rather have a partition takes its second choice, and says so", s.secondChoice},
		{"Who has what, what is free, and why a pod waits: kubectl deviceshare", s.kubectl},
	}
	for i, scene := range scenes {
		s.say("\n== %d. %s", i+1, scene.title)
		limited, cancel := context.WithTimeout(ctx, sceneLimit)
		err := scene.run(limited)
		cancel()
		if err != nil {
			return fmt.Errorf("scene %d, %s: %w", i+1, scene.title, err)
		}
	}
	s.say("\nAll %d scenes held, in %.0f s.", len(scenes), time.Since(s.begin).Seconds())
	return nil
}

// say prints a line of the story.
func (s *story) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// quote prints lines of a log or an event, indented.
func (s *story) quote(text string) {
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		s.say("     | %s", line)
	}
}

// pod begins a pod of the story.
func pod(name string) *workload.Pod { return workload.New(name, sandbox.ImageCUDAClient) }

// run creates pods and waits until all of them run.
func (s *story) run(ctx context.Context, pods ...*workload.Pod) error {
	for _, p := range pods {
		if err := s.user.Create(ctx, p.Build()); err != nil {
			return err
		}
	}
	for _, p := range pods {
		if _, err := s.user.WaitRunning(ctx, p.Build().Name); err != nil {
			return err
		}
	}
	return nil
}

// drawNode draws one node with the pods of the story that run on it.
func (s *story) drawNode(ctx context.Context, name string) error {
	inv, err := s.node(ctx, name)
	if err != nil {
		return err
	}
	pods, err := s.user.Pods(ctx)
	if err != nil {
		return err
	}
	var holders []picture.Pod
	for i := range pods {
		p := &pods[i]
		if p.Status.Phase != corev1.PodRunning {
			continue
		}
		placement, err := user.Placement(p)
		if err != nil {
			return err
		}
		holders = append(holders, picture.Pod{Owner: sharing.Owner(p.UID), Name: p.Name, Placement: placement})
	}
	s.say("")
	fmt.Fprint(s.out, picture.Node(inv, holders))
	return nil
}
