// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	"deviceshare/plugins/admission"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

// reviewCondition is true of pods of which any container names an extended resource, and of pods
// that claim devices, but for those that are plainly right. Whose resource it is does not matter:
// an administrator may rename ours at any time, and then nobody who may write here need know. Where
// the names are out of date, the webhook is called for every pod that asks under the new ones.
func reviewCondition(scheduler string, called podspec.Names) *acadmission.MatchConditionApplyConfiguration {
	return acadmission.MatchCondition().WithName("asks-or-claims-and-is-not-plainly-right").
		WithExpression("(" + anyResource(`r.contains("/")`) + " || " + placementKeyExpr() + " || " + unknownKeyExpr() + ") && !(" + plainlyRight(scheduler, called) + ")")
}

// unknownKeyExpr is true of a pod with an annotation or a label that begins as ours do and is none.
func unknownKeyExpr() string {
	known := slices.DeleteFunc(append(wire.UserKeys(), wire.WrittenKeys()...), func(key string) bool { return !wire.IsOurs(key) })
	begins := "k.lowerAscii().startsWith(" + strconv.Quote(wire.Family) + ")"
	return anyKey("annotations", begins+" && !(k in ["+quoteList(known)+"])") + " || " + anyKey("labels", begins)
}

// anyKey is true of a pod of which the condition is true of a key k of a map of its metadata.
func anyKey(field, condition string) string {
	field = "object.metadata." + field
	return "(has(" + field + ") && " + field + ".exists(k, " + condition + "))"
}

// quoteList writes texts as the members of a list.
func quoteList(texts []string) string {
	out := make([]string, 0, len(texts))
	for _, text := range texts {
		out = append(out, strconv.Quote(text))
	}
	return strings.Join(out, ", ")
}

// reviewedKeyExpr is true of a key k that the webhook may say something about.
func reviewedKeyExpr() string {
	begins := make([]string, 0, len(admission.KeyPrefixes()))
	for _, prefix := range admission.KeyPrefixes() {
		begins = append(begins, "k.lowerAscii().startsWith("+strconv.Quote(prefix)+")")
	}
	return strings.Join(begins, " || ")
}

// placementKeyExpr is true of a pod that carries an annotation by which a pod holds devices.
func placementKeyExpr() string {
	carries := make([]string, 0, len(admission.PlacementKeys()))
	for _, key := range admission.PlacementKeys() {
		carries = append(carries, strconv.Quote(key)+" in object.metadata.annotations")
	}
	return "(has(object.metadata.annotations) && (" + strings.Join(carries, " || ") + "))"
}

// plainlyRight is true of pods to which the webhook would add nothing and of which it would say
// nothing, as far as that can be told in a line: they name the scheduler, no node and nothing that
// looks like one of our annotations, and in each container no extended resource or whole amounts
// that are in order with every memory factor up to 16, none of them from a LimitRange. Most pods of
// a busy cluster are such, and cost no call. It may be false of pods that are right, and is not
// true of others: a test tries random ones.
func plainlyRight(scheduler string, called podspec.Names) string {
	others := []string{wire.PodToAllocate, wire.PodBindPhase, wire.PodBindTime}
	limitRange := "k == " + strconv.Quote(admission.LimitRangeKey) + ` && object.metadata.annotations[k].contains("/")`
	return strings.Join([]string{
		"has(object.spec.schedulerName) && object.spec.schedulerName == " + strconv.Quote(scheduler),
		"!has(object.spec.nodeName)",
		"!" + anyKey("annotations", "k in ["+quoteList(others)+"] || "+limitRange+" || "+reviewedKeyExpr()),
		"!" + anyKey("labels", reviewedKeyExpr()),
		plainContainers("containers", called),
		plainContainers("initContainers", called),
	}, " && ")
}

// plainContainers is true of a list of containers that are plain, and no more than half of those
// that may ask: there are two lists.
func plainContainers(field string, called podspec.Names) string {
	list := "object.spec." + field
	return fmt.Sprintf("(!has(%s) || size(%s) <= %d && %s.all(c, %s))", list, list, request.MostAsking/2, list, plainContainer(called))
}

// plainContainer is true of a container c that names no devices to NVIDIA's runtime, and whose
// extended resources, if it has any, are a number of devices and amounts of them.
func plainContainer(called podspec.Names) string {
	limit := func(name string, least, most int) string {
		return fmt.Sprintf("r == %q && q.asInteger() >= %d && q.asInteger() <= %d", name, least, most)
	}
	limits := strings.Join([]string{limit(called.Number, 1, 1000), limit(called.Memory, 0, 1_000_000), limit(called.Cores, 0, 100)}, " || ")
	return `!(has(c.env) && c.env.exists(e, e.name == "` + admission.VisibleVariable + `")) && (!has(c.resources) || ` +
		`(!has(c.resources.requests) || c.resources.requests.all(r, !r.contains("/") || (has(c.resources.limits) && r in c.resources.limits))) && ` +
		`(!has(c.resources.limits) || c.resources.limits.all(r, !r.contains("/") || (` + strconv.Quote(called.Number) + ` in c.resources.limits && ` +
		`[quantity(c.resources.limits[r])].all(q, q.isInteger() && (` + limits + `))))))`
}

// notMirror is false of the mirror pods of a kubelet: what a kubelet runs from a file was
// decided on the node.
func notMirror() *acadmission.MatchConditionApplyConfiguration {
	return acadmission.MatchCondition().WithName("not-a-mirror-pod").WithExpression(
		"!(has(object.metadata.annotations) && " + strconv.Quote(corev1.MirrorPodAnnotationKey) + " in object.metadata.annotations)")
}

// guardConditions let through updates that add, change or remove an annotation by which a
// pod holds devices, by anybody but those who write them. They are written so that
// no pod can make them fail: an error would refuse the update.
func guardConditions(writers []string) []*acadmission.MatchConditionApplyConfiguration {
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

// anyResource is true of a pod of which any container names a resource r, as limit or as request,
// of which the condition is true.
func anyResource(condition string) string {
	in := func(field string) string {
		return "(has(c.resources." + field + ") && c.resources." + field + ".exists(r, " + condition + "))"
	}
	each := func(field string) string {
		return "(has(object.spec." + field + ") && object.spec." + field + ".exists(c, has(c.resources) && (" +
			in("limits") + " || " + in("requests") + ")))"
	}
	return each("containers") + " || " + each("initContainers")
}
