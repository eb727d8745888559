// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"deviceshare/e2e/sandbox"
)

// profilePage is where the scheduler serves profiles of its processor time, and sliceSeconds how
// long one of them is: a turn has several, as nobody knows beforehand how long it takes.
const (
	profilePage  = "/debug/pprof/profile"
	sliceSeconds = 5
)

// profiler reads profiles of the scheduler.
type profiler struct{ url, token string }

// newProfiler makes an account that may read the page, see docs/endpoints.md.
func newProfiler(ctx context.Context, c *sandbox.Cluster) (*profiler, error) {
	url, err := c.PagesOf(ctx, sandbox.Scheduler)
	if err != nil {
		return nil, fmt.Errorf("find the scheduler's profiles: %w", err)
	}
	token, err := profileToken(ctx, c.Client())
	if err != nil {
		return nil, fmt.Errorf("get a token for the scheduler's profiles: %w", err)
	}
	return &profiler{url: fmt.Sprintf("%s%s?seconds=%d", url, profilePage, sliceSeconds), token: token}, nil
}

func profileToken(ctx context.Context, client kubernetes.Interface) (string, error) {
	const name = "scale-profiles"
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{profilePage}, Verbs: []string{"get"}}}}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}}}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	day := int64(24 * 60 * 60)
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return token.Status.Token, nil
}

// follow returns the profiles from now on until enough is done. The last one ends up to
// sliceSeconds later, when the scheduler has nothing to do.
func (p *profiler) follow(ctx, enough context.Context) ([]*profile.Profile, error) {
	var out []*profile.Profile
	for enough.Err() == nil {
		code, text, err := sandbox.GetPage(ctx, p.url, p.token)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("the answer is %d: %s", code, text)
		}
		if err != nil {
			return nil, fmt.Errorf("read a profile of the scheduler: %w", err)
		}
		one, err := profile.Parse(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("read a profile of the scheduler: %w", err)
		}
		out = append(out, one)
	}
	return out, nil
}

// keep writes profiles into a file, as one.
func keep(path string, all []*profile.Profile) (*profile.Profile, error) {
	merged, err := profile.Merge(all)
	if err != nil {
		return nil, fmt.Errorf("merge %d profiles: %w", len(all), err)
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("keep a profile: %w", err)
	}
	defer f.Close()
	if err := merged.Write(f); err != nil {
		return nil, fmt.Errorf("keep the profile %s: %w", path, err)
	}
	return merged, f.Close()
}

// Hot is a function and its part of all processor time.
type Hot struct {
	Name string
	Part float64
}

// hottest returns the n functions that took most of the processor. What the Go runtime and the
// standard library do is charged to the function that called them, as it is that which could do
// without; the collection of garbage, which nobody calls, is one function.
func hottest(p *profile.Profile, n int) []Hot {
	spent, total := map[string]int64{}, int64(0)
	for _, s := range p.Sample {
		value := s.Value[len(s.Value)-1] // nanoseconds
		spent[charged(s)] += value
		total += value
	}
	out := make([]Hot, 0, len(spent))
	for name, value := range spent {
		out = append(out, Hot{Name: name, Part: float64(value) / float64(max(1, total))})
	}
	slices.SortFunc(out, func(a, b Hot) int {
		if a.Part != b.Part {
			return int(b.Part*1e9) - int(a.Part*1e9)
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out[:min(n, len(out))]
}

const garbage = "garbage collection"

// charged returns the function that a sample is charged to.
func charged(s *profile.Sample) string {
	last := ""
	for _, at := range s.Location {
		for _, line := range at.Line {
			if line.Function == nil {
				continue
			}
			last = line.Function.Name
			if last == "runtime.gcBgMarkWorker" || last == "runtime.bgsweep" || last == "runtime.bgscavenge" {
				return garbage
			}
			if !standard(last) {
				return short(last)
			}
		}
	}
	return last
}

// standard reports whether a function is of the Go runtime or the standard library: the first
// element of its package's path has no dot in it.
func standard(function string) bool {
	first, _, nested := strings.Cut(function, "/")
	if !nested {
		first, _, _ = strings.Cut(function, ".")
		return first != "main"
	}
	return !strings.Contains(first, ".") && first != "deviceshare"
}

// short is a function's name with the last element of its package's path.
func short(function string) string {
	_, name, found := cutLast(function, "/")
	if !found {
		return function
	}
	return name
}
