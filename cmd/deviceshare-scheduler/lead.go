// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"volcano.sh/volcano/cmd/scheduler/app"
	"volcano.sh/volcano/cmd/scheduler/app/options"

	"deviceshare/plugins/leader"
)

// runScheduler runs Volcano's scheduler, as soon as this process leads where there are several. The
// election is ours and not Volcano's, for the reasons that package leader gives.
func runScheduler(volcano *options.ServerOption, cluster kubernetes.Interface, said *eventReporter, term *leader.Term) error {
	elect := volcano.LeaderElection
	if !elect.LeaderElect {
		return app.Run(volcano)
	}
	volcano.LeaderElection.LeaderElect = false
	namespace := elect.ResourceNamespace
	//lint:ignore SA1019 Volcano's older flag wins, as it does there.
	if old := volcano.LockObjectNamespace; old != "" {
		namespace = old
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name this process in the election: %w", err)
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, namespace, elect.ResourceName, cluster.CoreV1(), cluster.CoordinationV1(),
		// Two processes may have one host name.
		resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID()), EventRecorder: said.recorder})
	if err != nil {
		return fmt.Errorf("prepare the election of a leader: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	timing := leader.Timing{LeaseDuration: elect.LeaseDuration.Duration, RenewDeadline: elect.RenewDeadline.Duration, RetryPeriod: elect.RetryPeriod.Duration}
	return leader.Run(ctx, lock, timing, term, func() error { return app.Run(volcano) })
}
