// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"volcano.sh/volcano/cmd/scheduler/app"
	"volcano.sh/volcano/cmd/scheduler/app/options"

	"deviceshare/plugins/leader"
	"deviceshare/plugins/lookout"
	"deviceshare/sharing/rivals"
)

// Times between two looks for another scheduler: while this one works, and while it waits.
const (
	lookWorking = time.Minute
	lookWaiting = 10 * time.Second
)

// runScheduler runs Volcano's scheduler, as soon as this process leads where there are several, and
// no other scheduler takes the same pods. The election is ours and not Volcano's, for the reasons
// that package leader gives.
func runScheduler(volcano *options.ServerOption, deployment string, cluster kubernetes.Interface, said *eventReporter, term *leader.Term) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	elect := volcano.LeaderElection
	lease := rivals.Object{Namespace: elect.ResourceNamespace, Name: elect.ResourceName}
	//lint:ignore SA1019 Volcano's older flag wins, as it does there.
	if old := volcano.LockObjectNamespace; old != "" {
		lease.Namespace = old
	}
	own := lease
	if !elect.LeaderElect {
		own = rivals.Object{} // a lease of this name is another scheduler's
	}
	look, err := newLookout(volcano.SchedulerNames, deployment, own, cluster, said)
	if err != nil {
		return err
	}
	work := func() error { return look.RunAlone(ctx, func() error { return app.Run(volcano) }) }
	if !elect.LeaderElect {
		return work()
	}
	volcano.LeaderElection.LeaderElect = false
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name this process in the election: %w", err)
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, lease.Namespace, lease.Name, cluster.CoreV1(), cluster.CoordinationV1(),
		// Two processes may have one host name.
		resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID()), EventRecorder: said.recorder})
	if err != nil {
		return fmt.Errorf("prepare the election of a leader: %w", err)
	}
	timing := leader.Timing{LeaseDuration: elect.LeaseDuration.Duration, RenewDeadline: elect.RenewDeadline.Duration, RetryPeriod: elect.RetryPeriod.Duration}
	return leader.Run(ctx, lock, timing, term, work)
}

// newLookout returns what looks for other schedulers, nil without a Deployment. lease is that of
// this process's election, if it has one.
func newLookout(names []string, deployment string, lease rivals.Object, cluster kubernetes.Interface, said lookout.Reporter) (*lookout.Lookout, error) {
	if deployment == "" {
		return nil, nil
	}
	own, err := parseObject("--deviceshare-deployment", deployment)
	if err != nil {
		return nil, err
	}
	l := lookout.New(lookout.Options{Client: cluster, Report: said, Own: own, OwnLease: lease, Names: names, Working: lookWorking, Waiting: lookWaiting})
	return l, prometheus.Register(l)
}
