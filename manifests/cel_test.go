// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
)

// compiledPolicy is a ValidatingAdmissionPolicy as the API server compiles it.
type compiledPolicy struct {
	*admissionv1.ValidatingAdmissionPolicy
	conditions, validations, messages cel.ConditionEvaluator
}

// expression is one of a policy. It yields a truth, or a text.
type expression struct {
	name, text string
	yields     *celgo.Type
}

func (e *expression) GetName() string            { return e.name }
func (e *expression) GetExpression() string      { return e.text }
func (e *expression) ReturnTypes() []*celgo.Type { return []*celgo.Type{e.yields} }

// oldest knows what the oldest Kubernetes knows that docs/install.md names.
func oldest() *environment.EnvSet { return environment.MustBaseEnvSet(version.MajorMinor(1, 31), true) }

var strict = cel.OptionalVariableDeclarations{HasAuthorizer: true, StrictCost: true}

// compile compiles a policy with the API server's own code.
func compile(t *testing.T, p *admissionv1.ValidatingAdmissionPolicy) compiledPolicy {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(oldest())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range p.Spec.Variables {
		if r := compiler.CompileAndStoreVariable(&expression{v.Name, v.Expression, celgo.AnyType}, strict, environment.NewExpressions); r.Error != nil {
			t.Fatalf("variable %s of policy %s: %v", v.Name, p.Name, r.Error)
		}
	}
	var validations, messages []cel.ExpressionAccessor
	for _, v := range p.Spec.Validations {
		validations = append(validations, &expression{text: v.Expression, yields: celgo.BoolType})
		message := v.MessageExpression
		if message == "" {
			message = strconv.Quote(v.Message)
		}
		messages = append(messages, &expression{text: message, yields: celgo.StringType})
	}
	condition := func(list []cel.ExpressionAccessor) cel.ConditionEvaluator {
		c := compiler.CompileCondition(list, strict, environment.NewExpressions)
		if errs := c.CompilationErrors(); len(errs) > 0 {
			t.Fatalf("policy %s: %v", p.Name, errs)
		}
		return c
	}
	return compiledPolicy{p, condition(conditions(p.Spec.MatchConditions)), condition(validations), condition(messages)}
}

func conditions(list []admissionv1.MatchCondition) []cel.ExpressionAccessor {
	var out []cel.ExpressionAccessor
	for _, c := range list {
		out = append(out, &expression{c.Name, c.Expression, celgo.BoolType})
	}
	return out
}

// question is a request about a pod.
type question struct {
	operation   admission.Operation
	subresource string
	pod, before *corev1.Pod
	user        string   // who asks, "" is somebody
	groups      []string // of who asks
}

func (q question) attributes() *admission.VersionedAttributes {
	kind, pods := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	var before runtime.Object
	if q.before != nil {
		before = q.before
	}
	a := admission.NewAttributesRecord(q.pod, before, kind, q.pod.Namespace, q.pod.Name, pods, q.subresource, q.operation, nil, false,
		&user.DefaultInfo{Name: cmp.Or(q.user, "somebody"), Groups: q.groups})
	return &admission.VersionedAttributes{Attributes: a, VersionedKind: kind, VersionedObject: q.pod, VersionedOldObject: before}
}

// refusals are what a policy has against a request, in the order of its validations.
func (p compiledPolicy) refusals(t testing.TB, q question) []string {
	t.Helper()
	if !isTrueOfAll(t, p.conditions, q) {
		return nil
	}
	var out []string
	for i, v := range evaluate(t, p.validations, q) {
		if v.Value() == true {
			continue
		}
		message, isText := evaluate(t, p.messages, q)[i].Value().(string)
		if !isText || message == "" || strings.Contains(message, "\n") {
			t.Fatalf("the API server does not show %q", message)
		}
		out = append(out, message)
	}
	return out
}

// evaluate evaluates expressions about a request within the limits of the API server. One that
// fails is a mistake: it would refuse the pod.
func evaluate(t testing.TB, c cel.ConditionEvaluator, q question) []ref.Val {
	t.Helper()
	pods, pod := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	attributes := q.attributes()
	request := cel.CreateAdmissionRequest(attributes.Attributes, pods, pod)
	results, _, err := c.ForInput(t.Context(), attributes, request, cel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudget)
	if err != nil {
		t.Fatal(err)
	}
	var out []ref.Val
	for _, r := range results {
		if r.Error != nil {
			t.Fatalf("%s: %v", r.ExpressionAccessor.GetExpression(), r.Error)
		}
		out = append(out, r.EvalResult)
	}
	return out
}

func isTrueOfAll(t testing.TB, c cel.ConditionEvaluator, q question) bool {
	t.Helper()
	return !slices.ContainsFunc(evaluate(t, c, q), func(v ref.Val) bool { return v.Value() != true })
}

// webhookConditions compiles match conditions of a webhook.
func webhookConditions(t testing.TB, list []admissionv1.MatchCondition) cel.ConditionEvaluator {
	t.Helper()
	c := cel.NewConditionCompiler(oldest()).CompileCondition(conditions(list), strict, environment.NewExpressions)
	if errs := c.CompilationErrors(); len(errs) > 0 {
		t.Fatal(errs)
	}
	return c
}
