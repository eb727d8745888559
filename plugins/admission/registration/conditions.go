// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	"deviceshare/plugins/admission"
)

// mayConcern is true of pods of which any container names an extended resource, and of pods
// that claim devices. It names none of our resources: an administrator may rename them at any
// time, and then nobody who may write here need know.
func mayConcern() *acadmission.MatchConditionApplyConfiguration {
	return acadmission.MatchCondition().WithName("has-extended-resources-or-claims-some").
		WithExpression(names(`r.contains("/")`) + " || " + claims())
}

// claims is true of a pod that carries an annotation by which a pod holds devices.
func claims() string {
	carries := make([]string, 0, len(admission.PlacementKeys()))
	for _, key := range admission.PlacementKeys() {
		carries = append(carries, strconv.Quote(key)+" in object.metadata.annotations")
	}
	return "(has(object.metadata.annotations) && (" + strings.Join(carries, " || ") + "))"
}

// notMirror is false of the mirror pods of a kubelet: what a kubelet runs from a file was
// decided on the node.
func notMirror() *acadmission.MatchConditionApplyConfiguration {
	return acadmission.MatchCondition().WithName("not-a-mirror-pod").WithExpression(
		"!(has(object.metadata.annotations) && " + strconv.Quote(corev1.MirrorPodAnnotationKey) + " in object.metadata.annotations)")
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

// names is true of a pod of which any container names a resource r, as limit or as request,
// of which the condition is true.
func names(condition string) string {
	in := func(field string) string {
		return "(has(c.resources." + field + ") && c.resources." + field + ".exists(r, " + condition + "))"
	}
	each := func(field string) string {
		return "(has(object.spec." + field + ") && object.spec." + field + ".exists(c, has(c.resources) && (" +
			in("limits") + " || " + in("requests") + ")))"
	}
	return each("containers") + " || " + each("initContainers")
}
