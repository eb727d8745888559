// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// ErrNoPodResources: the kubelet does not offer what was asked.
var ErrNoPodResources = errors.New("the kubelet's podresources API is not available")

// PodSlots is the slots of each container of one pod, sorted, for one resource.
type PodSlots struct {
	Pod   types.NamespacedName
	Slots map[string][]string
}

// Resources asks the kubelet who has which slots. Never call it while an Allocate
// call is being answered: listing makes the kubelet forget a slot in flight
// (kubernetes#136021).
type Resources interface {
	// Get returns the usage of one pod; ErrNoPodResources when the kubelet is too
	// old to answer for a single pod.
	Get(ctx context.Context, pod types.NamespacedName) (PodSlots, error)
	// List returns the usage of every pod that has slots.
	List(ctx context.Context) ([]PodSlots, error)
}

// PodResources is the kubelet's API on its socket.
type PodResources struct {
	client   podresources.PodResourcesListerClient
	conn     *grpc.ClientConn
	resource Resource
}

// DialPodResources prepares a client; the connection is made when it is used and
// again when the kubelet restarts. resource is asked at every call.
func DialPodResources(socket string, resource Resource) (*PodResources, error) {
	client, conn, err := DialLister(socket)
	if err != nil {
		return nil, err
	}
	return &PodResources{client: client, conn: conn, resource: resource}, nil
}

// DialLister is DialPodResources for who wants the kubelet's own answers. The caller closes the
// connection.
func DialLister(socket string) (podresources.PodResourcesListerClient, *grpc.ClientConn, error) {
	// A kubelet that restarts is back within seconds; grpc would wait for minutes.
	again := backoff.DefaultConfig
	again.MaxDelay = 3 * time.Second
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: time.Second}),
		// A node can run many pods with many devices of other plugins.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, nil, fmt.Errorf("podresources client for %s: %w", socket, err)
	}
	return podresources.NewPodResourcesListerClient(conn), conn, nil
}

// Close ends the connection.
func (p *PodResources) Close() error { return p.conn.Close() }

// Get implements Resources.
func (p *PodResources) Get(ctx context.Context, pod types.NamespacedName) (PodSlots, error) {
	answer, err := askKubelet(ctx, "get resources of pod "+pod.String(), p.client.Get,
		&podresources.GetPodResourcesRequest{PodName: pod.Name, PodNamespace: pod.Namespace})
	if err != nil {
		return PodSlots{}, err
	}
	return p.podSlots(answer.GetPodResources()), nil
}

// List implements Resources.
func (p *PodResources) List(ctx context.Context) ([]PodSlots, error) {
	answer, err := askKubelet(ctx, "list resources of pods", p.client.List, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	var all []PodSlots
	for _, pod := range answer.GetPodResources() {
		if u := p.podSlots(pod); len(u.Slots) > 0 {
			all = append(all, u)
		}
	}
	return all, nil
}

// Offers returns the names of what device plugins offer at present, as far as it is healthy, by the
// resource that they registered. Unlike its checkpoint, the kubelet knows at once who has left.
// Unlike List, the question changes nothing.
func (p *PodResources) Offers(ctx context.Context) (map[string][]string, error) {
	answer, err := askKubelet(ctx, "ask for what device plugins offer", p.client.GetAllocatableResources, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return nil, err
	}
	offers := map[string][]string{}
	for _, d := range answer.GetDevices() {
		offers[d.GetResourceName()] = append(offers[d.GetResourceName()], d.GetDeviceIds()...)
	}
	for _, ids := range offers {
		slices.Sort(ids)
	}
	return offers, nil
}

// mostWait is how long one question to the kubelet may take: a fraction of the 30
// s in which a container start must be answered.
const mostWait = 8 * time.Second

// askKubelet asks a question, and again where the kubelet turns it away because of its rate limit
// (100 calls per second, bursts of 10), which many pods starting at once reach.
func askKubelet[Question, Answer any](ctx context.Context, what string,
	call func(context.Context, *Question, ...grpc.CallOption) (*Answer, error), question *Question) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, mostWait)
	defer cancel()
	for {
		answer, err := call(ctx, question)
		if err == nil {
			return answer, nil
		}
		if status.Code(err) != codes.ResourceExhausted {
			return nil, wrapCallError(what, err)
		}
		select {
		case <-ctx.Done():
			return nil, wrapCallError(what, err)
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// podSlots keeps what concerns our resource.
func (p *PodResources) podSlots(pod *podresources.PodResources) PodSlots {
	u := PodSlots{Pod: types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetName()}, Slots: map[string][]string{}}
	resource := p.resource.ResourceName()
	for _, c := range pod.GetContainers() {
		var slots []string
		for _, d := range c.GetDevices() {
			if d.GetResourceName() == resource {
				slots = append(slots, d.GetDeviceIds()...)
			}
		}
		if len(slots) > 0 {
			slices.Sort(slots)
			u.Slots[c.GetName()] = slots
		}
	}
	return u
}

// wrapCallError marks the answers of kubelets that do not offer the call: an unknown
// method, a method switched off, or no socket.
func wrapCallError(what string, err error) error {
	switch status.Code(err) {
	case codes.Unimplemented, codes.Unavailable:
		return fmt.Errorf("%s: %w: %w", what, ErrNoPodResources, err)
	}
	// A kubelet with the feature gate off answers with a plain error text.
	if strings.Contains(status.Convert(err).Message(), "disabled") {
		return fmt.Errorf("%s: %w: %w", what, ErrNoPodResources, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
