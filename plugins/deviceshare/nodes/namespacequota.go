// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/quota"
)

// NamespaceQuota is a ResourceQuota that limits devices, or was meant to.
type NamespaceQuota struct {
	quota.NamespaceQuota
	Object *corev1.ResourceQuota
}

// quotaPrefix stands before the names of resources in a ResourceQuota. Kubernetes counts amounts
// with the other prefix, requests., as they are written, and for resources of devices nothing with
// this one.
const quotaPrefix = "limits."

// quotaNames returns the names by which a ResourceQuota limits devices.
func (s *Settings) quotaNames() quota.Names {
	names := s.LimitNames()
	for _, name := range []*string{&names.Memory, &names.Cores, &names.Number} {
		if *name != "" {
			*name = quotaPrefix + *name
		}
	}
	return names
}

// NamespaceQuotas returns those of the ResourceQuotas that limit devices, or were meant to. It
// keeps the objects and does not change them.
func (s *Settings) NamespaceQuotas(all []*corev1.ResourceQuota) []NamespaceQuota {
	names := s.quotaNames()
	domains := quotaDomains(&names)
	var found []NamespaceQuota
	for _, object := range all {
		if isAbout(object, domains) {
			found = append(found, NamespaceQuota{Object: object, NamespaceQuota: quota.NamespaceQuota{
				Namespace: object.Namespace, Name: object.Name, Limits: limitsIn(object.Spec.Hard, names),
			}})
		}
	}
	return found
}

// quotaDomains returns how the names begin by which a ResourceQuota limits devices.
func quotaDomains(names *quota.Names) (domains []string) {
	for _, name := range []string{names.Memory, names.Cores, names.Number} {
		if domain, _, ok := strings.Cut(name, "/"); ok && !slices.Contains(domains, domain+"/") {
			domains = append(domains, domain+"/")
		}
	}
	return domains
}

func isAbout(object *corev1.ResourceQuota, domains []string) bool {
	for name := range object.Spec.Hard {
		if beginsWithAny(string(name), domains) {
			return true
		}
	}
	return false
}

func beginsWithAny(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// QuotaDoubts returns what the author of a ResourceQuota cannot have meant, one sentence for each
// entry. Total is what the devices of the cluster have; empty if none is known.
func (s *Settings) QuotaDoubts(q *NamespaceQuota, total quota.Amounts) []string {
	names := s.quotaNames()
	entries, domains := entriesIn("spec.hard", q.Object.Spec.Hard), quotaDomains(&names)
	doubts := quota.Doubts(entries, names, total)
	for i := range entries {
		if _, known := quota.ReadLimit(entries[i].Name, 0, names); !known && beginsWithAny(entries[i].Name, domains) {
			doubts = append(doubts, fmt.Sprintf("spec.hard %s: is no limit of devices, and nobody counts it. There are: %s", entries[i].Name, listNames(&names)))
		}
	}
	return doubts
}

func listNames(names *quota.Names) string {
	all := slices.DeleteFunc([]string{names.Number, names.Memory, names.Cores}, func(name string) bool { return name == "" })
	return strings.Join(all, ", ")
}

// QuotaKeys returns the keys of those quotas that count a pod.
func QuotaKeys(quotas []NamespaceQuota, pod *corev1.Pod) (keys []string) {
	for i := range quotas {
		if quotas[i].AppliesTo(pod) {
			keys = append(keys, quotas[i].Key())
		}
	}
	return keys
}

// AppliesTo reports whether the quota counts a pod: Kubernetes' scopes of pods, as its own counting
// of CPU and memory reads them. A scope that is about other objects applies to no pod.
func (q *NamespaceQuota) AppliesTo(pod *corev1.Pod) bool {
	if pod.Namespace != q.Namespace {
		return false
	}
	spec := &q.Object.Spec
	for _, scope := range spec.Scopes {
		if !isInScope(pod, &corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}) {
			return false
		}
	}
	if spec.ScopeSelector == nil {
		return true
	}
	for i := range spec.ScopeSelector.MatchExpressions {
		if !isInScope(pod, &spec.ScopeSelector.MatchExpressions[i]) {
			return false
		}
	}
	return true
}

// isInScope reports whether a pod is in one scope.
func isInScope(pod *corev1.Pod, of *corev1.ScopedResourceSelectorRequirement) bool {
	isTerminating := pod.Spec.ActiveDeadlineSeconds != nil
	isBestEffort := pod.Status.QOSClass == corev1.PodQOSBestEffort
	switch of.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return isTerminating
	case corev1.ResourceQuotaScopeNotTerminating:
		return !isTerminating
	case corev1.ResourceQuotaScopeBestEffort:
		return isBestEffort
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !isBestEffort
	case corev1.ResourceQuotaScopePriorityClass:
		return hasPriorityClass(pod.Spec.PriorityClassName, of)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return corepod.LooksAcrossNamespaces(pod)
	}
	return false
}

func hasPriorityClass(class string, of *corev1.ScopedResourceSelectorRequirement) bool {
	isNamed := slices.Contains(of.Values, class)
	switch of.Operator {
	case corev1.ScopeSelectorOpExists:
		return class != ""
	case corev1.ScopeSelectorOpDoesNotExist:
		return class == ""
	case corev1.ScopeSelectorOpIn:
		return class != "" && isNamed
	case corev1.ScopeSelectorOpNotIn:
		return class == "" || !isNamed
	}
	return false
}
