// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"deviceshare/e2e/laboratory/versions"
	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// TestInstalledCluster runs suites on what `helm install` made: the images, the chart, the real
// service accounts, security contexts, probes and mounts. It does so on two clusters at once: one
// leaves two processors idle for most of the time, two keep them busy.
func TestInstalledCluster(t *testing.T) {
	if os.Getenv("DEVICESHARE_E2E") == "" {
		t.Skip("needs root and a cluster: run `make test-e2e`")
	}
	o := sandbox.Options{Installed: true, Kubernetes: os.Getenv(versions.Variable)}
	second := o
	second.Second = true
	var one sync.Mutex // two that start at once would choose the same ports
	build := buildOnce()
	var both sync.WaitGroup
	var r rights
	var all [2]bool
	both.Go(func() { all[0] = runSuites(t, later(t, o, &one, build), whenUsed(&r)) })
	both.Go(func() { all[1] = runSuites(t, later(t, second, &one, build), whenDisturbed(&r)) })
	both.Wait()
	if all[0] && all[1] {
		t.Run("rights_are_used", r.areUsed)
	}
}

// whenUsed are suites of a cluster that people use and administer.
func whenUsed(r *rights) []suite {
	return []suite{
		{"placement", testPlacement},
		{"even_split", testEvenSplit},
		{"topology", testTopology},
		{"isolation", testIsolation},
		{"shapes", testShapes},
		{"waiting", testWaiting},
		{"reasons", testReasons},
		{"kubectl", testKubectl},
		{"doctor", testDoctor},
		{"simulate", testSimulate},
		{"page", testPage},
		{"queues", testQueues},
		{"queue_hierarchy", testQueueHierarchy},
		{"webhook", testWebhook},
		{"unfit_pods", testUnfit},
		{"identity", testIdentity},
		{"examples", testExamples},
		{"frameworks", testFrameworks},
		{"standing_in", testStandingIn},
		{"bad_input", testBadInput},
		{"writes", testWrites},
		{"health", testHealth},
		{"chart", testChart},
		{"endpoints", testEndpoints},
		{"prometheus", testPrometheus},
		{"strangers", testStrangers},
		{"upgrade", testUpgrade},
		{"beside_nvidia", testBesideNVIDIA},
		{"hostile_user", testHostileUser},
		{"greedy_container", testGreedyContainer},
		{"rights", r.test},
		{"forbidden", testForbidden},
		{"unasked", testUnasked},          // after rights: replicas that end want to watch what they may not any more
		{"forged", testForged},            // what it does in the scheduler's name is not what the scheduler needs
		{"signed", testSigned},            // it has another scheduler than the one that was audited
		{"plugin_token", testPluginToken}, // what it tries is not what the plugin needs
		{"false_alarms", testFalseAlarms},
		{"gitops", testGitops}, // last: another tool than helm owns the objects then
	}
}

// whenDisturbed are suites that kill and break parts of a cluster, change its devices and, at
// last, take the product away.
func whenDisturbed(r *rights) []suite {
	return []suite{
		{"killed", testKilledInstallation},
		{"evictions", testEvictions},
		{"mps", testMPS},
		{"worlds", testWorlds},
		{"broken_checkpoint", testCheckpoint},
		{"missing_driver", testDriver},
		{"driver_upgrade", testDriverUpgrade},
		{"plugin_update", testUpdate},
		{"refused", testRefused},
		{"edits_end_nothing", testEditsEndNothing},
		{"partitions", testPartitions},
		{"modes", testModes},
		{"vgpu_guest", testVGPUGuest},
		{"schedulers", testSchedulers},
		{"scheduler_config", testSchedulerConfig},
		{"neighbours", testNeighbours},
		{"namespace_quota", testNamespaceQuota},
		{"cordon", testCordon},
		{"dcgm", testDCGM},
		{"autoscale", testAutoscale},
		{"fluid", testFluid},
		{"fips", testFIPS},
		{"claims_by_hand", testClaimsByHand},
		{"rights_when_disturbed", r.test},
		{"chaos", testChaos}, // after rights: an API server that has just started refuses what it has not read yet
		{"false_alarms_when_disturbed", testFalseAlarms},
		{"mps_uninstall", testMPSUninstall}, // after rights: what ends without its role is refused
		{"uninstall", testUninstall},
	}
}

// stays starts a pod that has most of its memory, and asks for more than its limit after the given
// time. It succeeds if that is refused.
func stays(ctx context.Context, t *testing.T, u *user.User, seconds int) {
	t.Helper()
	ask := workload.Ask{Number: 1, Memory: 1000}
	commands := []string{"alloc", "900", "expect", "ok", "hold", strconv.Itoa(seconds), "alloc", "200", "expect", "oom"}
	if err := u.Create(ctx, pod("stays").App("main", ask, commands...).Annotate(wire.UserMode, string(sharing.HAMiCore)).Build()); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitLog(ctx, "stays", "main", "hold"); err != nil {
		t.Fatal(err)
	}
}

// testKilledInstallation kills each part of the installed product. The kubelet starts it again, and
// pods that ran go on with the limits that they had.
func testKilledInstallation(t *testing.T, w *world) {
	ctx, u := w.user(t, "killed", 2*time.Minute)
	stays(ctx, t, u, 6)
	for _, component := range []string{sandbox.Scheduler, sandbox.Webhook, sandbox.DevicePlugin} {
		if err := w.cluster.Kill(component); err != nil {
			t.Fatal(err)
		}
		if err := w.cluster.WaitReady(ctx, component); err != nil {
			t.Fatal(err)
		}
	}
	succeeds(ctx, t, u, "stays")
	if !runs(ctx, t, u, "after") {
		t.Error("no pod runs after every part of the product was killed")
	}
}
