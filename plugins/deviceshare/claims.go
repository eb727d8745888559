// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"deviceshare/plugins/deviceshare/claims"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/selectors"
	"deviceshare/sharing"
	"deviceshare/sharing/claimspec"
	"deviceshare/sharing/claimspec/coreclaim"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

// claimAsk is the one claim of our driver by which a pod asks.
type claimAsk struct {
	owner sharing.Owner
	name  types.NamespacedName
	claim *claims.Claim
	class *resourcev1.DeviceClass
	// selectors are those of the class and of the claim's request.
	selectors []string
}

// seenClaim is one claim that a pod names, with what was known of it when the pod was read.
type seenClaim struct {
	entry string // in the pod's spec
	name  types.NamespacedName
	claim *claims.Claim
	class *resourcev1.DeviceClass
	// isGenerated says that the claim is made from a template, for this pod alone.
	isGenerated bool
}

// claimReader reads what pods ask for by claims. It is safe for concurrent use. A nil *claimReader
// is a scheduler that allocates none.
type claimReader struct {
	registry  *claims.Registry
	classes   resourcelisters.DeviceClassLister
	selectors *selectors.Cache
}

// errClaimsUnread is why no pod is given devices before the claims are known, which have some.
var errClaimsUnread = errors.New("the scheduler has not read all ResourceClaims yet")

// lookUpClaims returns the claims that a pod names as they are known now.
func (r *claimReader) lookUpClaims(pod *corev1.Pod) (seen []seenClaim) {
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		s := seenClaim{entry: entry.Name, name: types.NamespacedName{Namespace: pod.Namespace, Name: coreclaim.NameIn(pod, entry)}, isGenerated: entry.ResourceClaimName == nil}
		if s.name.Name != "" {
			s.claim = r.registry.Find(s.name)
		}
		if s.claim != nil {
			s.class = r.classOf(s.claim.Object)
		}
		seen = append(seen, s)
	}
	return seen
}

// classOf returns the class of a claim's first request, nil if there is none.
func (r *claimReader) classOf(object *resourcev1.ResourceClaim) *resourcev1.DeviceClass {
	for i := range object.Spec.Devices.Requests {
		if e := object.Spec.Devices.Requests[i].Exactly; e != nil {
			if class, err := r.classes.Get(e.DeviceClassName); err == nil {
				return class
			}
		}
	}
	return nil
}

// isCurrent reports whether the claims that a pod names are known as they were.
func (r *claimReader) isCurrent(pod *corev1.Pod, seen []seenClaim) bool {
	now := r.lookUpClaims(pod)
	if len(now) != len(seen) {
		return false
	}
	for i := range now {
		if now[i] != seen[i] {
			return false
		}
	}
	return true
}

// isOurs reports whether a claim asks our driver, or has devices of it.
func (r *claimReader) isOurs(s *seenClaim) bool {
	if s.claim == nil {
		return false
	}
	if s.claim.Node != "" || coreclaim.HasOurDevices(s.claim.Object) {
		return true
	}
	if claimspec.AreForDriver(coreclaim.Read(s.claim.Object).Configs) {
		return true
	}
	if s.class == nil {
		return false
	}
	class := coreclaim.ReadClass(s.class)
	return claimspec.AreForDriver(class.Configs) || r.selectors.AreOurs(class.Selectors)
}

// namesOurClaim reports whether a pod names a claim of our driver. A pod that names one which is
// not known does not.
func (r *claimReader) namesOurClaim(pod *corev1.Pod) bool {
	if r == nil || len(pod.Spec.ResourceClaims) == 0 {
		return false
	}
	for _, s := range r.lookUpClaims(pod) {
		if r.isOurs(&s) {
			return true
		}
	}
	return false
}

// readClaimAsk reads what a pod with claims asks for by them. It returns nil if none of them is of
// our driver; then the pod's containers are all that counts.
func (r *claimReader) readClaimAsk(pod *corev1.Pod, s *nodes.Settings) *ask {
	a := &ask{pod: pod, settings: s, seen: r.lookUpClaims(pod), reader: r}
	var ours, others, missing []string
	var own *seenClaim
	for i := range a.seen {
		switch c := &a.seen[i]; {
		case c.claim == nil:
			missing = append(missing, c.entry)
		case r.isOurs(c):
			ours, own = append(ours, c.entry), c
		default:
			others = append(others, c.entry)
		}
	}
	switch {
	case len(missing) > 0 && (len(ours) > 0 || !s.AllocatesClaims):
		a.mistakes = refuseClaims("its ResourceClaims (spec.resourceClaims: %s) do not exist yet", strings.Join(missing, ", "))
	case len(ours) == 0:
		return nil
	case len(others) > 0:
		a.mistakes = refuseClaims("it has claims of other drivers (spec.resourceClaims: %s) as well as of ours (%s), which is not supported", strings.Join(others, ", "), ours[0])
	case len(ours) > 1:
		a.mistakes = refuseClaims("it has several claims of our driver (spec.resourceClaims: %s): write one, with a count", strings.Join(ours, ", "))
	case corepod.Asks(pod, s.Names) || corepod.AsksUnserved(pod, s.Names):
		a.mistakes = refuseClaims("it asks by %s and by a claim (spec.resourceClaims: %s): write one of them", s.Names.Number, ours[0])
	default:
		r.readOwn(a, own)
	}
	return a
}

func refuseClaims(format string, args ...any) error {
	return fmt.Errorf("node(s) refuse the pod, because "+format, args...)
}

// readOwn reads the one claim of our driver.
func (r *claimReader) readOwn(a *ask, own *seenClaim) {
	object := own.claim.Object
	neighbours, mistakes := a.settings.NeighboursOf(a.pod)
	useless, instead := findUselessAnnotation(a.pod)
	switch {
	case mistakes != nil:
		a.mistakes = refuseClaims("its annotations cannot be read: %w", mistakes)
	case neighbours.IsSelective():
		a.mistakes = refuseClaims("rules about neighbours are not supported with claims (spec.resourceClaims: %s)", own.entry)
	case useless != "":
		a.mistakes = refuseClaims("annotation %s has no effect on a claim: write %s into its parameters", useless, instead)
	case object.DeletionTimestamp != nil:
		a.mistakes = refuseClaims("its claim %s is being deleted", own.name.Name)
	case own.isGenerated && resourceclaim.IsForPod(a.pod, object) != nil:
		a.mistakes = refuseClaims("claim %s was made for another pod", own.name.Name)
	case !resourceclaim.IsReservedForPod(a.pod, object) && !resourceclaim.CanBeReserved(object):
		a.mistakes = refuseClaims("as many pods as may use a claim use %s", own.name.Name)
	case own.claim.Node == "" && object.Status.Allocation != nil:
		a.mistakes = refuseClaims("claim %s has devices of another driver", own.name.Name)
	case own.claim.Node == "" && own.class == nil:
		a.mistakes = refuseClaims("there is no DeviceClass %s, which claim %s names", classNames(object), own.name.Name)
	}
	if a.mistakes != nil {
		return
	}
	spec, class := coreclaim.Read(object), claimspec.Class{}
	if own.class != nil {
		class = coreclaim.ReadClass(own.class)
	}
	req, wrong := claimspec.Read(&spec, &class, a.settings.Rules())
	if len(wrong) == 0 {
		wrong = r.checkSelectors(&spec, &class)
	}
	if len(wrong) > 0 && own.claim.Node == "" {
		a.mistakes = refuseClaims("its claim %s cannot be read: %s", own.name.Name, strings.Join(request.Texts(wrong), "; "))
		return
	}
	a.claim = &claimAsk{owner: sharing.Owner(object.UID), name: own.name, claim: own.claim, class: own.class}
	a.claim.selectors = append(a.claim.selectors, class.Selectors...)
	for i := range spec.Requests {
		a.claim.selectors = append(a.claim.selectors, spec.Requests[i].Selectors...)
	}
	req.Owner, req.Namespace, req.Neighbours = a.claim.owner, a.pod.Namespace, neighbours
	a.request = req
	a.amounts = fmt.Sprintf("claim %s", object.UID)
	a.usePolicy()
}

// findUselessAnnotation returns an annotation of a pod that nobody reads for a claim, and what to
// write into the claim's parameters instead; "" if the pod has none.
func findUselessAnnotation(pod *corev1.Pod) (key, instead string) {
	const selector = "a selector"
	fields := map[string]string{
		wire.UserMode: "modes", wire.UserPolicy: "policy", wire.UserNUMA: "numa", wire.UserSplit: "the amounts of each device",
		wire.UserUseModels: selector, wire.UserNotModels: selector, wire.UserUseIDs: selector, wire.UserNotIDs: selector, wire.UserVirtual: selector,
	}
	for _, key := range wire.UserKeys() {
		if _, has := pod.Annotations[key]; has && fields[key] != "" {
			return key, fields[key]
		}
	}
	return "", ""
}

// checkSelectors returns what is wrong with the selectors of a claim and its class.
func (r *claimReader) checkSelectors(spec *claimspec.Claim, class *claimspec.Class) (wrong []request.Mistake) {
	for _, e := range class.Selectors {
		if err := r.selectors.Check(e); err != nil {
			wrong = append(wrong, request.Mistake{Path: "DeviceClass " + class.Name + " spec.selectors", Message: err.Error()})
		}
	}
	for i := range spec.Requests {
		for _, e := range spec.Requests[i].Selectors {
			if err := r.selectors.Check(e); err != nil {
				wrong = append(wrong, request.Mistake{Path: fmt.Sprintf("spec.devices.requests[%d].exactly.selectors", i), Message: err.Error()})
			}
		}
	}
	return wrong
}

func classNames(object *resourcev1.ResourceClaim) string {
	var names []string
	for i := range object.Spec.Devices.Requests {
		if e := object.Spec.Devices.Requests[i].Exactly; e != nil {
			names = append(names, e.DeviceClassName)
		}
	}
	return strings.Join(names, ", ")
}
