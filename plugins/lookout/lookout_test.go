// SPDX-License-Identifier: Apache-2.0

package lookout

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"deviceshare/sharing/events"
	"deviceshare/sharing/rivals"
)

// told are the events in their order.
type told chan string

func (c told) Report(o *corev1.ObjectReference, reason, message string) {
	c <- o.Kind + " " + o.Namespace + "/" + o.Name + " " + string(o.UID) + " " + reason + ": " + message
}

func (c told) Tell(o *corev1.ObjectReference, reason, message string) { c.Report(o, reason, message) }

func deployment(namespace, name, image string, args ...string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid-of-own"},
		Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image, Args: args}}}}}}
}

// lookoutOn looks on a cluster with our own Deployment and other objects, again at once.
func lookoutOn(objects ...runtime.Object) (*Lookout, *fake.Clientset, told) {
	ours := deployment("ds", "deviceshare-scheduler", "deviceshare/scheduler:v1", "--deviceshare-deployment=ds/deviceshare-scheduler")
	client, said := fake.NewClientset(append(objects, ours)...), make(told, 1000)
	own := rivals.Object{Namespace: "ds", Name: "deviceshare-scheduler"}
	return New(Options{Client: client, Report: said, Own: own, OwnLease: own, Names: []string{"volcano"},
		Working: time.Millisecond, Waiting: time.Millisecond}), client, said
}

// gauge is the value of the metric.
func gauge(t *testing.T, c prometheus.Collector) float64 {
	t.Helper()
	ch := make(chan prometheus.Metric, 1)
	c.Collect(ch)
	var m dto.Metric
	if err := (<-ch).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetGauge().GetValue()
}

func theirs() *appsv1.Deployment {
	return deployment("volcano-system", "volcano-scheduler", "volcanosh/vc-scheduler:v1.14.1")
}

// scale sets the replicas of Volcano's scheduler.
func scale(t *testing.T, client *fake.Clientset, replicas int32) {
	t.Helper()
	d := theirs()
	d.Spec.Replicas = &replicas
	if _, err := client.AppsV1().Deployments(d.Namespace).Update(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestWorkBeginsWhenTheOtherSchedulerIsGoneAndEndsWhenItIsBack(t *testing.T) {
	l, client, said := lookoutOn(theirs())
	var works atomic.Bool
	began, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- l.RunAlone(t.Context(), func() error {
			works.Store(true)
			close(began)
			<-t.Context().Done()
			return nil
		})
	}()
	first := <-said
	for _, want := range []string{"Deployment ds/deviceshare-scheduler uid-of-own " + events.SecondScheduler + ": ", "Deployment volcano-system/volcano-scheduler takes",
		"kubectl -n volcano-system scale deployment volcano-scheduler --replicas=0", "places no pods"} {
		if !strings.Contains(first, want) {
			t.Errorf("the event is %q, want %q in it", first, want)
		}
	}
	if again := <-said; again != first {
		t.Errorf("people are told again: %q", again)
	}
	if got := gauge(t, l); got != 1 || works.Load() {
		t.Errorf("with another scheduler: metric %v, this one works: %v", got, works.Load())
	}
	scale(t, client, 0)
	<-began
	over := func(text string) bool { return strings.Contains(text, events.SecondScheduler+events.Resolved+": ") }
	if got := <-said; !over(got) {
		t.Errorf("said %q", got)
	}
	scale(t, client, 1)
	if err := <-ended; !errors.Is(err, ErrRival) || !strings.Contains(err.Error(), "volcano-system/volcano-scheduler") {
		t.Errorf("the work ended with %v", err)
	}
	if got := <-said; got != first {
		t.Errorf("said %q", got)
	}
}

func TestALeaseThatIsRenewedKeepsThisSchedulerFromWorking(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "volcano"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("host-7_1"), LeaseDurationSeconds: ptr.To[int32](3600), RenewTime: &metav1.MicroTime{Time: time.Now()}}}
	l, client, said := lookoutOn(lease)
	ended := make(chan error)
	go func() { ended <- l.RunAlone(t.Context(), func() error { return errors.New("worked") }) }()
	if got := <-said; !strings.Contains(got, `"host-7_1", which renews the lease elsewhere/volcano`) {
		t.Errorf("said %q", got)
	}
	lease.Spec.HolderIdentity = ptr.To("")
	if _, err := client.CoordinationV1().Leases("elsewhere").Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || err.Error() != "worked" {
		t.Error(err)
	}
	var asked []string
	for _, a := range client.Actions() {
		if list, ok := a.(clienttesting.ListAction); ok && a.GetResource().Resource == "leases" {
			asked = append(asked, list.GetListRestrictions().Fields.String())
		}
	}
	if asked = slices.Compact(asked); !slices.Equal(asked, []string{"metadata.name=volcano"}) {
		t.Errorf("asked for leases %q: the role allows those of the scheduler's name", asked)
	}
}

func TestASchedulerThatCannotLookDoesNotBeginAndDoesNotEnd(t *testing.T) {
	l, client, said := lookoutOn()
	looks := make(chan struct{})
	var asked, began int
	resource := schema.GroupResource{Group: "apps", Resource: "deployments"}
	client.PrependReactor("list", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		if asked++; asked == 6 { // after five looks without an answer
			began = asked
			return false, nil, nil
		}
		if began > 0 {
			looks <- struct{}{}
		}
		return true, nil, apierrors.NewForbidden(resource, "", errors.New("not yet"))
	})
	done := errors.New("done")
	err := l.RunAlone(t.Context(), func() error {
		if began == 0 {
			t.Error("the work began before it was known whether there is another scheduler")
		}
		for range 5 { // that fail during the work
			<-looks
		}
		go func() {
			for range looks {
			}
		}()
		return done
	})
	if !errors.Is(err, done) || len(said) > 0 {
		t.Errorf("ended with %v, %d events", err, len(said))
	}
}

func TestOnlyLeasesThatMayBeReadAreLookedAt(t *testing.T) {
	l, client, _ := lookoutOn()
	client.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "", errors.New("no right"))
	})
	done := errors.New("done")
	if err := l.RunAlone(t.Context(), func() error { return done }); !errors.Is(err, done) {
		t.Error(err)
	}
}

func TestOneThatWaitsForAnotherSchedulerEndsWhenItIsTold(t *testing.T) {
	l, _, said := lookoutOn(theirs())
	ctx, end := context.WithCancel(t.Context())
	go func() {
		<-said
		end()
	}()
	if err := l.RunAlone(ctx, func() error { return errors.New("both work") }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestWithoutALookoutTheWorkBeginsAtOnce(t *testing.T) {
	done := errors.New("done")
	if err := (*Lookout)(nil).RunAlone(t.Context(), func() error { return done }); !errors.Is(err, done) {
		t.Error(err)
	}
}
