// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/config"
	"deviceshare/endpoint"
	"deviceshare/endpoint/endpointtest"
	"deviceshare/plugins/deviceshare"
	"deviceshare/plugins/deviceshare/arguments"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/page"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/wire"
)

// reports collects what is reported.
type reports chan string

func (r reports) Report(o *corev1.ObjectReference, reason, message string) {
	r <- o.Kind + " " + o.Namespace + "/" + o.Name + ": " + reason + ": " + message
}

func (r reports) Tell(o *corev1.ObjectReference, reason, message string) {
	r.Report(o, reason, message)
}

func configMap(namespace, name, text, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: version},
		Data:       map[string]string{config.DeviceKey: text},
	}
}

// follows notes what it is told.
type follows struct {
	settings chan nodes.Settings
	why      chan string
	shown    chan wire.ConfigVersions
}

func (f follows) Configure(s nodes.Settings)     { f.settings <- s }
func (f follows) Withhold(why string)            { f.why <- why }
func (f follows) Versions(v wire.ConfigVersions) { f.shown <- v }

func feed(t *testing.T, client *fake.Clientset) (*configFeed, chan nodes.Settings, reports) {
	t.Helper()
	settings, said := make(chan nodes.Settings, 100), make(reports, 100)
	f := &configFeed{client: client, report: said, follows: follows{settings: settings, why: make(chan string, 100), shown: make(chan wire.ConfigVersions, 100)}}
	t.Cleanup(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.stop()
	})
	return f, settings, said
}

// until takes settings until one counts memory in units of factor MiB.
func until(t *testing.T, settings chan nodes.Settings, factor int64) {
	t.Helper()
	for deadline := time.After(10 * time.Minute); ; {
		select {
		case s := <-settings:
			if s.Factor == factor {
				return
			}
		case <-deadline:
			t.Fatalf("no settings with factor %d", factor)
		}
	}
}

func TestTheConfigMapThatIsNamedComesIntoForceAndItsEditsToo(t *testing.T) {
	client := fake.NewClientset(configMap("here", "mine", "nvidia: {gpuMemoryFactor: 10}", "1"), configMap("here", "other", "nvidia: {gpuMemoryFactor: 30}", "1"))
	f, settings, said := feed(t, client)
	f.Use("here", "mine")
	until(t, settings, 10)
	f.Use("here", "mine") // every session says it

	update := func(text, version string) {
		if _, err := client.CoreV1().ConfigMaps("here").Update(context.Background(), configMap("here", "mine", text, version), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	update("nvidia: {gpuMemoryFactor: 20}", "2")
	until(t, settings, 20)
	update("nvidia: {gpuMemoryFactor: many}", "3")
	if got := <-said; !strings.HasPrefix(got, "ConfigMap here/mine: DeviceConfigurationInvalid: nvidia.gpuMemoryFactor") {
		t.Errorf("reported %q", got)
	}
	f.Use("here", "other")
	until(t, settings, 30)
}

func TestWithoutAConfigMapTheDefaultsComeIntoForce(t *testing.T) {
	f, settings, _ := feed(t, fake.NewClientset())
	f.Use("kube-system", config.DeviceName)
	s := <-settings
	if s.Factor != 1 || s.Names.Number != wire.ResourceNumber {
		t.Errorf("settings %+v", s)
	}
}

func TestAProcessThatStartsWhileTheConfigMapHasAMistakeTakesNoDefaults(t *testing.T) {
	client := fake.NewClientset(configMap("here", "mine", "nvidia: {resourceCountName: x/gpu, gpuMemoryFactor: many}", "1"))
	f, settings, said := feed(t, client)
	why := f.follows.(follows).why
	f.Use("here", "mine")
	if got := <-why; !strings.HasPrefix(got, "ConfigMap here/mine: nvidia.gpuMemoryFactor") {
		t.Errorf("pods are told %q", got)
	}
	if got := <-said; !strings.Contains(got, "no pod gets devices") {
		t.Errorf("reported %q", got)
	}
	fixed := configMap("here", "mine", "nvidia: {resourceCountName: x/gpu, gpuMemoryFactor: 1024}", "2")
	if _, err := client.CoreV1().ConfigMaps("here").Update(context.Background(), fixed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if s := <-settings; s.Factor != 1024 || s.Names.Number != "x/gpu" {
		t.Errorf("the first settings in force are %+v", s)
	}
	broken := configMap("here", "mine", "nvidia: {gpuMemoryFactor: many}", "3")
	if _, err := client.CoreV1().ConfigMaps("here").Update(context.Background(), broken, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for got := range said {
		if strings.Contains(got, "stays so") {
			break
		}
	}
	select {
	case s := <-settings:
		t.Errorf("a later mistake put %+v in force", s)
	case text := <-why:
		t.Errorf("a later mistake made pods wait: %s", text)
	default:
	}
}

func TestTheHashesInForceAreThoseTheDevicePluginShows(t *testing.T) {
	text := `{"nodeconfig":[{"name":"n","operatingmode":"mps"}]}`
	nodes := configMap("kube-system", config.NodeName, "", "1")
	nodes.Data = map[string]string{config.NodeKey: text}
	f, settings, _ := feed(t, fake.NewClientset(configMap("kube-system", config.DeviceName, "nvidia: {gpuMemoryFactor: 10}", "1"), nodes))
	shown := f.follows.(follows).shown
	f.Use("kube-system", config.DeviceName)
	until(t, settings, 10)
	device, _ := config.LoadDevice([]byte("nvidia: {gpuMemoryFactor: 10}"))
	node, _ := config.LoadNode([]byte(text))
	want := wire.ConfigVersions{Device: device.Hash(), Node: node.Hash(), Geometry: device.GeometryHash()}
	for deadline := time.After(10 * time.Minute); ; {
		select {
		case got := <-shown:
			if got == want {
				return
			}
		case <-deadline:
			t.Fatalf("never shown: %+v", want)
		}
	}
}

func TestOurPluginTakesThePlaceOfTheOneThatShipsWithVolcano(t *testing.T) {
	shipped, ok := framework.GetPluginBuilder(deviceshare.PluginName)
	if !ok {
		t.Fatal("this binary does not link Volcano's plugins")
	}
	if _, ours := shipped(framework.Arguments{}).(*deviceshare.Plugin); ours {
		t.Fatal("the test would show nothing")
	}
	store := deviceshare.NewStore(deviceshare.Options{Backends: factory.New(), Report: make(reports, 1)})
	deviceshare.Register(store.Build)
	build, _ := framework.GetPluginBuilder(deviceshare.PluginName)
	if _, ours := build(framework.Arguments{}).(*deviceshare.Plugin); !ours {
		t.Error("the plugin that ships with Volcano is still built")
	}
}

func TestTheArgumentsAreReadFromVolcanosConfigurationFile(t *testing.T) {
	text := `actions: "allocate"
tiers:
- plugins:
  - name: deviceshare
    arguments:
      deviceshare.VGPUEnable: true
      deviceshare.SchedulePolicy: spread
      deviceshare.ScheduleWeight: 5
      deviceshare.NodeLockEnable: false
`
	_, tiers, _, _, err := scheduler.UnmarshalSchedulerConf(text)
	if err != nil {
		t.Fatal(err)
	}
	got, mistakes := arguments.Read(tiers[0].Plugins[0].Arguments)
	if len(mistakes) > 0 || !got.Enabled || got.Policy.Name() != "spread" || got.Weight != 5 {
		t.Errorf("%+v, %v", got, mistakes)
	}
}

func TestThePercentageIsKeptOutOfVolcanosSums(t *testing.T) {
	deviceshare.IgnoreSums(wire.ResourcePercentage)
	if !slices.Contains(api.IgnoredDevicesList.List(), wire.ResourcePercentage) {
		t.Error("a pod that asks for it would wait for a node that offers it")
	}
}

func TestTheLedgerIsServedBesideTheMetricsAndAtItsOwnAddressToItsReaders(t *testing.T) {
	store := deviceshare.NewStore(deviceshare.Options{Backends: factory.New(), Report: make(reports, 1)})
	volcano := &options.ServerOption{EnableMetrics: true, EnablePprof: true, ListenAddress: endpointtest.FreeAddress(t)}
	debug := endpointtest.FreeAddress(t)
	users := endpointtest.NewUsers()
	users.Issue("reader", "reader")
	users.Issue("other", "other")
	paths := []string{page.Path, "/metrics", "/debug/pprof/cmdline"}
	for _, path := range paths {
		users.Allow("reader", path, true)
	}
	if err := serveMetricsAndLedger(volcano, ownOptions{debugAddress: debug}, store, endpoint.NewAccess(users.Client(t))); err != nil {
		t.Fatal(err)
	}
	if volcano.EnableMetrics || volcano.EnablePprof {
		t.Error("Volcano would listen at the same address")
	}
	pages := []string{debug + page.Path}
	for _, path := range paths {
		pages = append(pages, volcano.ListenAddress+path)
	}
	for _, page := range pages {
		for authorization, want := range map[string]int{"Bearer reader": 200, "Bearer other": 403, "": 401} {
			r, err := endpointtest.Get("https://"+page, authorization)
			if err != nil {
				t.Fatal(err)
			}
			if r.StatusCode != want {
				t.Errorf("%s with %q: status %d, want %d", page, authorization, r.StatusCode, want)
			}
			if err := r.Body.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestAnAddressThatCannotBeServedNamesItsFlag(t *testing.T) {
	store := deviceshare.NewStore(deviceshare.Options{Backends: factory.New(), Report: make(reports, 1)})
	for flag, o := range map[string]struct {
		volcano options.ServerOption
		ours    ownOptions
	}{
		"--listen-address":            {volcano: options.ServerOption{EnableMetrics: true, ListenAddress: "256.0.0.1:0"}},
		"--deviceshare-debug-address": {ours: ownOptions{debugAddress: "256.0.0.1:0"}},
	} {
		access := endpoint.NewAccess(fake.NewClientset())
		if err := serveMetricsAndLedger(&o.volcano, o.ours, store, access); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
