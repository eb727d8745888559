// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"deviceshare/endpoint"
	"deviceshare/plugins/deviceshare/page"
	"deviceshare/view/forward"
)

// readerRole is who may read metrics and the ledger.
const readerRole = "deviceshare-metrics-reader"

// isReview reports whether a rule lets a program ask the API server who somebody is and what they
// may do, and nothing else.
func isReview(r rbacv1.PolicyRule) bool {
	return slices.Equal(r.Verbs, []string{"create"}) &&
		(slices.Equal(r.APIGroups, []string{"authentication.k8s.io"}) && slices.Equal(r.Resources, []string{"tokenreviews"}) ||
			slices.Equal(r.APIGroups, []string{"authorization.k8s.io"}) && slices.Equal(r.Resources, []string{"subjectaccessreviews"}))
}

func TestTheReadersRoleGivesThePagesAndNothingElse(t *testing.T) {
	if endpoint.ReaderRole != readerRole {
		t.Errorf("refusals name the role %s", endpoint.ReaderRole)
	}
	for _, r := range all[*rbacv1.ClusterRole](decode(t, read(t, installFile))) {
		if r.Name != readerRole {
			continue
		}
		if len(r.Rules) != 1 || !slices.Equal(r.Rules[0].NonResourceURLs, []string{"/metrics", page.Path, forward.PagePath}) ||
			!slices.Equal(r.Rules[0].Verbs, []string{"get"}) || len(r.Rules[0].Resources) > 0 {
			t.Errorf("%+v", r.Rules)
		}
		return
	}
	t.Error("it is not there")
}

func TestEveryProgramWithMetricsMayAskWhoReadsThem(t *testing.T) {
	objects := decode(t, read(t, installFile))
	programs := 0
	for name, spec := range pods(objects) {
		for _, c := range spec.Containers {
			for _, p := range c.Ports {
				if p.Name != "metrics" {
					continue
				}
				programs++
				reviews := 0
				for _, r := range all[*rbacv1.ClusterRole](objects) {
					if r.Name == spec.ServiceAccountName {
						reviews += countReviews(r.Rules)
					}
				}
				if reviews != 2 {
					t.Errorf("%s has %d of the two rights", name, reviews)
				}
			}
		}
	}
	if programs != 3 {
		t.Errorf("%d programs have a port for metrics", programs)
	}
}

func countReviews(rules []rbacv1.PolicyRule) int {
	count := 0
	for _, r := range rules {
		if isReview(r) {
			count++
		}
	}
	return count
}

func TestThePodMonitorSendsATokenThatReadsThePagesOnly(t *testing.T) {
	text := render(t, values{"monitoring.podMonitor.enabled": true})
	for _, document := range strings.Split(text, "\n---\n") {
		var monitor struct {
			Kind string
			Spec struct {
				PodMetricsEndpoints []struct {
					Scheme    string
					TLSConfig struct{ InsecureSkipVerify bool }
					// Of a PodMonitor the token is in a Secret: it has no field for a file.
					Authorization struct {
						Credentials struct{ Name, Key string }
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(document), &monitor); err != nil || monitor.Kind != "PodMonitor" {
			continue
		}
		for _, e := range monitor.Spec.PodMetricsEndpoints {
			if e.Scheme != "https" || !e.TLSConfig.InsecureSkipVerify || e.Authorization.Credentials.Name != "deviceshare-metrics" || e.Authorization.Credentials.Key != "token" {
				t.Errorf("%+v", e)
			}
		}
		if len(monitor.Spec.PodMetricsEndpoints) != 1 {
			t.Errorf("%d endpoints", len(monitor.Spec.PodMetricsEndpoints))
		}
		bound := 0
		for _, b := range all[*rbacv1.ClusterRoleBinding](decode(t, text)) {
			for _, s := range b.Subjects {
				if s.Name == "deviceshare-metrics" {
					bound++
					if b.RoleRef.Name != readerRole {
						t.Errorf("its account has %s", b.RoleRef.Name)
					}
				}
			}
		}
		if bound != 1 {
			t.Errorf("its account is bound %d times", bound)
		}
		return
	}
	t.Error("there is no PodMonitor")
}
