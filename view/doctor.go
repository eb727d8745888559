// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"deviceshare/config"
	"deviceshare/sharing/wire"
	"deviceshare/view/capture"
)

// Health is what is wrong with an installation, each with the command that mends it.
type Health struct {
	Problems []Trouble `json:"problems"`
	// Unknown are what could not be looked at, and why.
	Unknown []string `json:"unknown,omitempty"`
}

// Service is the name of the webhook's Service.
const Service = capture.Prefix + "webhook"

// requestsPolicy refuses pods that the webhook has not completed.
const requestsPolicy = capture.Prefix + "requests"

// Unreleased is the version of programs that no release made.
const Unreleased = "unreleased"

// examiner collects the findings about one installation.
type examiner struct {
	cluster *Cluster
	in      *capture.Installation
	health  Health
}

// Doctor examines an installation; version is that of the program that asks.
func (c *Cluster) Doctor(version string) Health {
	if c.state.Installation == nil {
		return Health{Unknown: []string{"the installation was not read"}}
	}
	e := examiner{cluster: c, in: c.state.Installation, health: Health{Problems: []Trouble{}}}
	e.checkRights()
	e.checkPrograms()
	e.checkVersions(version)
	e.checkSchedulers()
	e.checkLegacyPlugins()
	e.checkWebhook()
	e.checkConfig()
	e.checkQueueLimits()
	e.checkPlatform()
	for _, t := range c.findTroubles() {
		if t.On != ownRights { // said above, with who needs it
			e.health.Problems = append(e.health.Problems, t)
		}
	}
	return e.health
}

func (e *examiner) addProblem(on, what, do string) {
	e.health.Problems = append(e.health.Problems, Trouble{on, what, do})
}

// checkRights names what the user's commands need and the user may not do.
func (e *examiner) checkRights() {
	for _, r := range e.in.Rights {
		if r.Allowed {
			continue
		}
		what := strings.TrimSuffix(r.Resource+"."+r.Group, ".")
		if r.Name != "" {
			what += "/" + r.Name
		}
		do := fmt.Sprintf("kubectl auth can-i %s %s", r.Verb, what)
		if r.Namespace != "" {
			do += " -n " + r.Namespace
		}
		e.addProblem(ownRights, fmt.Sprintf("you may not %s %s, which %s needs", r.Verb, what, r.For), do+"; an administrator binds the roles deviceshare-view and deviceshare-top")
	}
}

func (e *examiner) checkPrograms() {
	for _, part := range []string{"scheduler", "webhook", "device-plugin"} {
		if part == "webhook" && e.isWithoutWebhook() {
			continue
		}
		var all, ready []capture.Program
		for _, p := range e.in.Programs {
			if p.Part == part || part == "scheduler" && len(p.Schedulers) > 0 {
				all = append(all, p)
				if p.Ready {
					ready = append(ready, p)
				}
			}
		}
		look := fmt.Sprintf("kubectl -n %s describe pods -l %s=%s%s", e.in.Namespace, capture.NameLabel, capture.Prefix, part)
		switch {
		case len(all) == 0 && part == "device-plugin":
			e.addProblem(part, "no pod of it is there: nodes publish no devices", "kubectl -n "+e.in.Namespace+" get daemonset "+capture.Prefix+part)
		case len(all) == 0:
			e.addProblem(part, "no pod of it is there", fmt.Sprintf("kubectl -n %s scale deployment %s%s --replicas=2", e.in.Namespace, capture.Prefix, part))
		case len(ready) == 0:
			e.addProblem(part, fmt.Sprintf("none of its %s is ready", countText(len(all), "pod")), look)
		case part == "device-plugin":
			e.reportUnreadyPlugins(all)
		}
	}
}

// reportUnreadyPlugins names the device plugins that are not ready: each is one node's only one.
func (e *examiner) reportUnreadyPlugins(plugins []capture.Program) {
	for _, p := range plugins {
		if !p.Ready {
			e.addProblem(p.Node, fmt.Sprintf("its device plugin, pod %s, is not ready", p.Pod), fmt.Sprintf("kubectl -n %s logs %s --all-containers --tail=50", p.Namespace, p.Pod))
		}
	}
}

// checkVersions compares what images say they are. The keeper is not updated with the others.
func (e *examiner) checkVersions(own string) {
	parts := map[string][]string{} // version to parts
	for _, p := range e.in.Programs {
		_, tag, tagged := strings.Cut(p.Image, ":")
		if p.Part == "" || p.Part == "keeper" || !tagged || strings.Contains(p.Image, "@") {
			continue
		}
		if !slices.Contains(parts[tag], p.Part) {
			parts[tag] = append(parts[tag], p.Part)
		}
	}
	tags := slices.Sorted(maps.Keys(parts))
	if len(tags) > 1 {
		said := make([]string, 0, len(tags))
		for _, tag := range tags {
			slices.Sort(parts[tag])
			said = append(said, tag+" of "+strings.Join(parts[tag], " and "))
		}
		e.addProblem("versions", "the programs are of several: "+strings.Join(said, ", "),
			"kubectl -n "+e.in.Namespace+" rollout status daemonset/deviceshare-device-plugin; if it ends, upgrade with the chart of one version")
	}
	if len(tags) == 1 && own != Unreleased && strings.TrimPrefix(own, "v") != strings.TrimPrefix(tags[0], "v") {
		e.addProblem("versions", fmt.Sprintf("this program is %s, the cluster runs %s: what it says of shares may be wrong", own, tags[0]),
			"install kubectl-deviceshare "+tags[0])
	}
}

// checkSchedulers looks for two that give out the same devices without knowing of each other.
func (e *examiner) checkSchedulers() {
	byName := map[string][]string{}
	first := map[string]map[string]capture.Program{}
	for _, p := range e.in.Programs {
		for _, name := range p.Schedulers {
			who := p.Namespace + "/" + cmp.Or(strings.TrimPrefix(p.Owner, "deployment "), p.Pod)
			if first[name] == nil {
				first[name] = map[string]capture.Program{}
			}
			if _, known := first[name][who]; !known {
				first[name][who] = p
				byName[name] = append(byName[name], who)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		list := byName[name]
		if len(list) < 2 {
			continue
		}
		slices.SortFunc(list, func(a, b string) int { // the product's own first: it stays
			return cmp.Or(cmp.Compare(len(first[name][b].Part), len(first[name][a].Part)), cmp.Compare(a, b))
		})
		p := first[name][list[1]]
		e.addProblem("scheduler "+name, "several take its pods, and give the same devices away twice: "+strings.Join(list, ", "),
			stopCommand(p))
	}
}

// stopCommand is the command that takes a program out of the cluster.
func stopCommand(p capture.Program) string {
	if strings.HasPrefix(p.Owner, "deployment ") {
		return fmt.Sprintf("kubectl -n %s scale %s --replicas=0", p.Namespace, p.Owner)
	}
	return fmt.Sprintf("kubectl -n %s delete %s", p.Namespace, cmp.Or(p.Owner, "pod "+p.Pod))
}

// checkLegacyPlugins names nodes on which Volcano's own device plugin offers the same resources.
func (e *examiner) checkLegacyPlugins() {
	nodes := map[string][]string{}
	for _, p := range e.in.Programs {
		if p.Legacy {
			nodes[stopCommand(p)] = append(nodes[stopCommand(p)], cmp.Or(p.Node, p.Namespace+"/"+p.Pod))
		}
	}
	for _, do := range slices.Sorted(maps.Keys(nodes)) {
		slices.Sort(nodes[do])
		e.addProblem(firstOf(nodes[do]), "Volcano's own device plugin runs there, too: both offer the same resources", do)
	}
}

// isWithoutWebhook reports whether the installation has no webhook and is to have none, as with
// webhook.enabled=false: neither a pod of it nor a registration is there.
func (e *examiner) isWithoutWebhook() bool {
	return !e.mayNotSeeHooks() && len(e.in.Hooks) == 0 &&
		!slices.ContainsFunc(e.in.Programs, func(p capture.Program) bool { return p.Part == "webhook" })
}

func (e *examiner) mayNotSeeHooks() bool {
	return slices.ContainsFunc(e.cluster.state.Forbidden, func(read string) bool { return strings.Contains(read, "webhookconfigurations") })
}

// checkWebhook asks whether the API server calls the webhook and gets answers.
func (e *examiner) checkWebhook() {
	if e.isWithoutWebhook() {
		e.health.Unknown = append(e.health.Unknown, "the webhook: the installation has none, neither pods nor a registration, as with webhook.enabled=false. "+
			"Pods have to name their scheduler and "+e.cluster.settings.Names.Number+" themselves; if it is to have one, helm upgrade with --set webhook.enabled=true")
		return
	}
	if e.mayNotSeeHooks() {
		e.health.Unknown = append(e.health.Unknown, "whether the API server calls the webhook: you may not read its registration")
	} else {
		e.checkRegistration()
	}
	restart := fmt.Sprintf("kubectl -n %s rollout restart deployment %s", e.in.Namespace, Service)
	if e.in.Probe != nil && strings.Contains(e.in.Probe.Error, "x509") {
		restart = e.renewCertsCommand()
	}
	switch p := e.in.Probe; {
	case p == nil:
		e.health.Unknown = append(e.health.Unknown, "whether the webhook answers: you may not create pods there, for a trial")
	case strings.Contains(p.Error, "failed calling webhook"):
		e.addProblem("webhook", "the API server does not reach it: "+p.Error, restart)
	case strings.Contains(p.Error, "'"+requestsPolicy+"'"), p.Error == "" && !p.Completed:
		e.addProblem("webhook", "it does not answer: a pod that asks for devices gets no scheduler", restart)
	case p.Error != "":
		e.health.Unknown = append(e.health.Unknown, "whether the webhook answers: the API server refuses a pod with devices: "+p.Error)
	}
}

func (e *examiner) checkRegistration() {
	if len(e.in.Hooks) == 0 {
		e.addProblem("webhook", "the API server is not told to call it: it has no registration", "helm upgrade the chart, which brings the MutatingWebhookConfiguration deviceshare")
	}
	for _, h := range e.in.Hooks {
		switch {
		case h.Namespace != e.in.Namespace || h.Service != Service:
			e.addProblem("webhook "+h.Name, fmt.Sprintf("the API server calls %s/%s for it, the webhook is %s/%s", h.Namespace, h.Service, e.in.Namespace, Service),
				"kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations deviceshare -o yaml; upgrade or delete the installation that it is of, or name the right one by --install-namespace")
		case !h.HasCA:
			e.addProblem("webhook "+h.Name, "the API server has no certificate to know it by", e.renewCertsCommand())
		}
	}
}

// renewCertsCommand has the webhook's certificates made and registered now.
func (e *examiner) renewCertsCommand() string {
	return fmt.Sprintf("kubectl -n %s create job --from=cronjob/%s-ca %s-ca-by-hand", e.in.Namespace, Service, Service)
}

// checkConfig compares what nodes have in force with the ConfigMap. Nodes that differ from each
// other are among the cluster's problems.
func (e *examiner) checkConfig() {
	c := e.cluster
	if c.state.DeviceConfig == nil || len(c.configMistakes) > 0 {
		return
	}
	d, _ := config.LoadDevice([]byte(*c.state.DeviceConfig))
	behind, force := []string{}, ""
	for _, n := range c.nodes {
		if n.Object == nil || n.Object.Annotations[wire.NodeConfig] == "" {
			continue
		}
		v, err := wire.DecodeConfig(n.Object.Annotations[wire.NodeConfig])
		if err == nil && v.Device != "" && v.Device != d.Hash() {
			behind, force = append(behind, n.Name), v.Device
		}
	}
	if len(behind) > 0 {
		e.addProblem(firstOf(behind), fmt.Sprintf("has device configuration %s in force, the ConfigMap is %s", force, d.Hash()),
			fmt.Sprintf("wait a minute, then kubectl -n %s logs -l %s=%sdevice-plugin --tail=50", e.in.Namespace, capture.NameLabel, capture.Prefix))
	}
}
