// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	"deviceshare/plugins/admission"
	"deviceshare/sharing/podspec"
)

// conditions let through pods that name one of our resources, and no mirror pods
// of a kubelet: what a kubelet runs from a file was decided on the node.
func conditions(n podspec.Names) []*acadmission.MatchConditionApplyConfiguration {
	return selected("asks-for-gpu-shares", asks(n))
}

// completed let through those, and pods that carry an annotation by which a pod holds
// devices, whatever they ask for: the resources may have had other names before.
func completed(n podspec.Names) []*acadmission.MatchConditionApplyConfiguration {
	carries := make([]string, 0, len(admission.PlacementKeys()))
	for _, key := range admission.PlacementKeys() {
		carries = append(carries, strconv.Quote(key)+" in object.metadata.annotations")
	}
	return selected("asks-for-gpu-shares-or-claims-some",
		asks(n)+" || (has(object.metadata.annotations) && ("+strings.Join(carries, " || ")+"))")
}

// selected let through pods of which the expression is true and that are no mirror.
func selected(name, expression string) []*acadmission.MatchConditionApplyConfiguration {
	return []*acadmission.MatchConditionApplyConfiguration{
		acadmission.MatchCondition().WithName(name).WithExpression(expression),
		acadmission.MatchCondition().WithName("not-a-mirror-pod").WithExpression(notMirror()),
	}
}

// guarded let through updates that add, change or remove an annotation by which a
// pod holds devices, by anybody but those who write them. They are written so that
// no pod can make them fail: an error would refuse the update.
func guarded(writers []string) []*acadmission.MatchConditionApplyConfiguration {
	value := func(pod, key string) string {
		return "(has(" + pod + ".metadata.annotations) && " + key + " in " + pod + ".metadata.annotations ? '=' + " + pod + ".metadata.annotations[" + key + "] : '')"
	}
	var changes, users []string
	for _, key := range admission.PlacementKeys() {
		key = strconv.Quote(key)
		changes = append(changes, value("object", key)+" != "+value("oldObject", key))
	}
	for _, user := range writers {
		users = append(users, strconv.Quote(user))
	}
	return []*acadmission.MatchConditionApplyConfiguration{
		acadmission.MatchCondition().WithName("changes-a-placement").WithExpression(strings.Join(changes, " || ")),
		acadmission.MatchCondition().WithName("not-by-its-writers").WithExpression("!(has(request.userInfo.username) && request.userInfo.username in [" + strings.Join(users, ", ") + "])"),
	}
}

// asks is true of a pod of which any container names one of the resources, as
// limit or as request.
func asks(n podspec.Names) string {
	var names []string
	for _, name := range []string{n.Number, n.Memory, n.Cores, n.Percentage} {
		if name != "" {
			names = append(names, strconv.Quote(name))
		}
	}
	in := func(field string) string {
		return "(has(c.resources." + field + ") && c.resources." + field + ".exists(r, r in [" + strings.Join(names, ", ") + "]))"
	}
	each := func(field string) string {
		return "(has(object.spec." + field + ") && object.spec." + field + ".exists(c, has(c.resources) && (" +
			in("limits") + " || " + in("requests") + ")))"
	}
	return each("containers") + " || " + each("initContainers")
}

func notMirror() string {
	return "!(has(object.metadata.annotations) && " + strconv.Quote(corev1.MirrorPodAnnotationKey) + " in object.metadata.annotations)"
}
