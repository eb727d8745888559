// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// leftOut are the suites, and the parts of suites, that run in `make test-all` only, and what shows
// the same in `make test`. What stands here must exist, and no suite may be left out that the table
// of promises in docs/develop.md names.
func leftOut() map[string]string {
	all := partsLeftOut()
	maps.Copy(all, suitesLeftOut())
	return all
}

func suitesLeftOut() map[string]string {
	return map[string]string{
		"even_split":        "place: `TestPoliciesDecideWithinThePlacement`; suite `placement`",
		"topology":          "place: `TestTheSetOfDevicesIsTheBestOfAll`; suite `placement`",
		"queue_hierarchy":   "quota: `TestRandomHierarchiesAgreeWithADumbSum`; suite `queues`",
		"doctor":            "kubectl-deviceshare: `TestTheDoctorFindsWhatIsWrongAndSaysWhatMendsIt`; suite `kubectl`",
		"simulate":          "simulate: `TestAPodThatFitsIsPlacedAndOneThatDoesNotIsToldWhy`; suite `kubectl`",
		"writes":            "deviceshare: `TestAnySequenceOfEventsLeavesWhatTheSnapshotSays`; suite `identity`",
		"standing_in":       "ways_out: *standing in as the device plugin mounts it*; suite `isolation`",
		"prometheus":        "monitoring: `TestQueriesAskForMetricsThatThereAre`; suite `endpoints`",
		"upgrade":           "suites `plugin_update`, `schedulers`",
		"beside_nvidia":     "kubelet: `TestWhoeverComesToTheSocketTheKubeletKeepsItsSlots`",
		"chaos":             "suites `killed`, `refused`, `plugin_update`; `make chaos`",
		"gitops":            "manifests: `TestASyncRevertsNothingThatHasChangedSince`; lookout: `TestWorkBeginsWhenTheOtherSchedulerIsGoneAndEndsWhenItIsBack`",
		"mps_uninstall":     "keeper: `TestAKeeperThatIsToldToEndWaitsForContainers`",
		"uninstall":         "host: `TestSettingsAreMadeOnceAndRemovedAtLast`",
		"vgpu_guest":        "driver: `TestTheRealBindingTellsAVirtualDeviceAndItsLicence`; node: `testdata/50-a-virtual-machine.txt`",
		"scheduler_config":  "schedulerconf: `TestAGoodEditIsHandedOnAndAWrongOneIsNot`, `TestAProgramDoesNotStartWithAConfigurationThatHasMistakes`",
		"neighbours":        "deviceshare: `TestAPodWithoutNeighboursHasItsDeviceAsLongAsItIsThere`, `TestAnEditOfALabelConcernsPodsThatCome`",
		"namespace_quota":   "deviceshare: `TestANamespaceTakesNoMoreThanItWasGiven`, `TestNoOrderOfEventsPassesAQuotaOfANamespace`",
		"cordon":            "deviceshare: `TestACordonedDeviceTakesNoNewPodsAndKeepsThoseOnIt`, `TestADrainedDeviceIsEmptiedAndItsPodsStartElsewhere`",
		"dcgm":              "mirror: `TestContainersHaveTheDevicesThatTheyWereGiven`, `TestAnExporterFindsEveryPodUnderItsDevices`",
		"autoscale":         "deviceshare: `TestANodeIsAskedForWhenPodsLackDevicesAndNoMoreWhenItHasCome`; demand: `TestTheNodesAskedForSufficeAndOneLessDoesNot`",
		"fluid":             "deviceshare: `TestACacheWinsAsThePageSays`",
		"fips":              "signing: `TestPlacementsAreSignedAndCheckedWithFIPSCryptographyOnly`; manifests: `TestEveryContainerRunsWithTheCryptographyThatTheValuesSay`",
		"claims_by_hand":    "nothing of this product: it asks Kubernetes what ADR 0065 stands on",
		"broken_checkpoint": "agent: `TestABrokenCheckpointIsKeptAsideAndRebuiltFromWhatRuns`",
		"missing_driver":    "deviceshare-device-plugin: `TestADriverThatIsMissingIsAnEventAndTheNodeComesUpLater`",
		"driver_upgrade":    "deviceshare: `TestPodsLeaveANodeWhoseDriverIsReplaced`; node: `testdata/47-another-driver.txt`",
	}
}

func partsLeftOut() map[string]string {
	return map[string]string{
		"mps/updates":                             "modes/mps: `TestARestartedPluginAdoptsTheDaemon`",
		"mps/plugin_killed":                       "modes/mps: `TestARestartedPluginAdoptsTheDaemon`; suites `killed`, `refused`",
		"mps/daemon_killed":                       "modes/mps: `TestADaemonThatDiesIsStartedAgainAndToldAbout`",
		"mps/keeper_killed":                       "modes/mps: `TestADaemonThatDiesIsStartedAgainAndToldAbout`",
		"mps/keeper_away":                         "keeper: `TestAKeeperThatCannotServeSaysWhy`",
		"mps/keeper_replaced":                     "keeper: `TestAKeeperThatIsToldToEndWaitsForContainers`",
		"mps/clients":                             "mps: `TestTheBackendKeepsItsPromises`",
		"partitions/made_by_hand":                 "modes/mig: `TestAnInstanceThatExistsIsAdopted`",
		"partitions/edited_geometry":              "node: `testdata/38-other-geometries.txt`",
		"partitions/placed_under_an_old_geometry": "node: `testdata/41-misplaced.txt`",
		"partitions/examples_of_the_page":         "suite `examples`",
		"partitions/reboot":                       "modes/mig: `TestACrashAndARebootAtAnyEffectAreRepaired`; suite `edits_end_nothing`",
		"chart/additional_nodes":                  "cdi: `TestContainersGetTheNodesThatAreAskedForAndNoOthers`",
		"worlds/unasked_runtime":                  "agent: `TestAContainerIsEndedThatHasNothingOfWhatItWasGiven`",
		"examples/cores":                          "manifests: `TestExamplesAskForWhatTheRulesAllow`; suites `shapes`, `examples`",
		"examples/deployment":                     "manifests: `TestExamplesAskForWhatTheRulesAllow`; suites `refused`, `examples`",
		"examples/even-split":                     "manifests: `TestExamplesAskForWhatTheRulesAllow`; suites `placement`, `examples`",
		"examples/gpu-type":                       "manifests: `TestExamplesAskForWhatTheRulesAllow`; suites `bad_input`, `examples`",
		"examples/init-container":                 "manifests: `TestExamplesAskForWhatTheRulesAllow`; suites `identity`, `examples`",
		"examples/one-numa-node":                  "manifests: `TestExamplesAskForWhatTheRulesAllow`; suites `placement`, `examples`",
		"examples/percentage":                     "manifests: `TestExamplesAskForWhatTheRulesAllow`; suites `shapes`, `examples`",
		"examples/sidecar":                        "manifests: `TestExamplesAskForWhatTheRulesAllow`; suites `identity`, `examples`",
		"examples/whole-device":                   "manifests: `TestExamplesAskForWhatTheRulesAllow`; suites `identity`, `examples`",
		"examples/queue-hierarchy":                "manifests: `TestExamplesAskForWhatTheRulesAllow`; suites `queues`, `examples`",
		"examples/two-devices":                    "manifests: `TestExamplesAskForWhatTheRulesAllow`; suites `identity`, `examples`",
		"modes/administrator":                     "node: `testdata/15-needs-an-administrator.txt`",
		"modes/under_load":                        "node: `testdata/10-edited-under-pods.txt`",
		"modes/busy_device":                       "deviceshare-device-plugin: `TestAModeChangeWaitsForThePodsOfTheDeviceAndNewOnesArePlacedAnew`",
		"modes/placed_before":                     "node: `testdata/41-misplaced.txt`",
		"modes/three_modes":                       "deviceshare-device-plugin: `TestModesByUUIDIndexAndModelOverTheModeOfTheNode`; suite `page`",
		"worlds/kubelet_restart":                  "agent: `TestWithoutTheKubeletsCheckpointAnAppContainerKeepsItsOwnAllocation`; suite `edits_end_nothing`",
		"health/lost_device":                      "node: `testdata/06-vanishes-and-returns.txt`; suite `health`",
		"health/reset_wanted":                     "node: `testdata/04-critical-errors.txt`; suite `health`",
		"health/rows_not_mapped":                  "node: `testdata/04-critical-errors.txt`; suite `health`",
		"evictions/finalizer":                     "holds: `TestAHoldLastsUntilItsPodsAreBoundOrItCannotBeUsed`; suite `evictions`",
		"evictions/overcommit":                    "deviceshare: `TestAPodThatNamesMemoryGetsRoomThoughPluginProportionHasNone`",
		"evictions/gang":                          "deviceshare: `TestAGangIsBrokenOnlyIfNoSinglePodWouldDoAndThenLeavesAsAWhole`",
		"evictions/budget":                        "deviceshare: `TestNoPlanBreaksABudget`",
		"evictions/alternating":                   "deviceshare: `TestNobodyIsEvictedInVainInAnyHistory`; suite `evictions`",
		"evictions/mps":                           "plan: `TestPlansCostWhatTheCheapestSetOfPodsCosts`; suite `evictions`",
		"evictions/mig":                           "plan: `TestPlansCostWhatTheCheapestSetOfPodsCosts`; suite `evictions`",
		"evictions/moves":                         "deviceshare: `TestPodsThatMoveFindTheirPlaces`; plan: `TestPlansMoveTheFewestPods`",
		"evictions/plan":                          "simulate: `TestAPlanTakesTheFewestMovesAndHolds`; kubectl-deviceshare: `TestAPlanIsAppliedToAllPodsOrToNone`",
		"evictions/turned_off":                    "deviceshare: `TestAConfigurationWithoutTheActionsEvictsNobody`",
		"frameworks/deployment":                   "suite `frameworks`",
		"frameworks/job":                          "suite `frameworks`",
		"frameworks/jobset":                       "suite `frameworks`",
		"frameworks/pytorchjob":                   "suite `frameworks`",
		"frameworks/trainjob":                     "suite `frameworks`",
		"frameworks/raycluster":                   "suite `frameworks`",
		"frameworks/workflow":                     "suite `frameworks`",
	}
}

// isLeftOut reports whether a suite, or a part of the suite that t runs, is left out of this run.
func isLeftOut(name string) bool {
	return testing.Short() && leftOut()[name] != ""
}

// part runs a part of a suite, unless this run leaves it out.
func part(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	if isLeftOut(path.Base(t.Name()) + "/" + name) {
		return
	}
	t.Run(name, test)
}

// rounds is how often something is repeated: in `make test`, and in `make test-all`.
func rounds(short, long int) int {
	if testing.Short() {
		return short
	}
	return long
}

func TestOnlySuitesThatAreThereAreLeftOut(t *testing.T) {
	names := suiteNames()
	for name, instead := range leftOut() {
		suite, _, _ := strings.Cut(name, "/")
		if !slices.Contains(names, suite) || instead == "" {
			t.Errorf("left out is %q, for %q: no such suite, or no reason", name, instead)
		}
	}
}

// What shows the same must be there, and run in `make test`.
func TestWhatIsLeftOutIsShownByOtherTests(t *testing.T) {
	tests := testSources(t)
	quoted, suites := regexp.MustCompile("`([^`]+)`"), suiteNames()
	for name, instead := range leftOut() {
		for part := range strings.SplitSeq(instead, "; ") {
			for _, m := range quoted.FindAllStringSubmatch(part, -1) {
				found, _ := filepath.Glob("../../*/*/" + m[1])
				isSuite := slices.Contains(suites, m[1]) && leftOut()[m[1]] == ""
				isThere := isSuite || len(found) > 0 || strings.Contains(tests, "func "+m[1]+"(") || strings.HasPrefix(m[1], "make ")
				if !isThere {
					t.Errorf("%s is left out, and %s is not there or left out, too", name, m[1])
				}
			}
		}
	}
	page, err := os.ReadFile("../../docs/develop.md")
	if err != nil {
		t.Fatal(err)
	}
	_, promises, _ := strings.Cut(string(page), "\n## Promises\n")
	promises, _, _ = strings.Cut(promises, "\nOnly in ")
	named := 0
	for _, m := range regexp.MustCompile("`([a-z_]+)(/[a-z_]+)?`").FindAllStringSubmatch(promises, -1) {
		if !slices.Contains(suites, m[1]) {
			continue // a command
		}
		named++
		if leftOut()[m[1]] != "" || leftOut()[m[1]+m[2]] != "" {
			t.Errorf("docs/develop.md: make test leaves out %s%s", m[1], m[2])
		}
	}
	if named < 20 {
		t.Errorf("docs/develop.md names %d suites for the promises", named)
	}
}

func suiteNames() []string {
	var names []string
	for _, s := range slices.Concat(whenUsed(new(rights)), whenDisturbed(new(rights))) {
		names = append(names, s.name)
	}
	return names
}

// testSources is the text of all Go tests outside of e2e.
func testSources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"cmd", "config", "deviceplugin", "endpoint", "manifests", "plugins", "sharing", "view"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}
