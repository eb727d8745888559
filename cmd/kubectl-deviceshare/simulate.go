// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"deviceshare/view/capture"
)

// simulator is the program that has Volcano's scheduler inside.
const simulator = "kubectl-deviceshare-simulate"

// The ConfigMap of the scheduler's configuration, as the chart installs it.
const schedulerConfigName, schedulerConfigKey = "deviceshare-scheduler-config", "volcano-scheduler.conf"

// simulateCommand hands over to the simulator. kubectl finds it by its name without this command;
// this one is for help, and for those who run the program itself.
func (o *options) simulateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "simulate FILE", Short: "Say what the scheduler would do with a captured cluster: if pods came, if nodes left, by another policy",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := findSimulator()
			if err != nil {
				return err
			}
			return fmt.Errorf("run %s: %w", path, syscall.Exec(path, append([]string{simulator}, args...), os.Environ()))
		},
	}
}

// findSimulator looks beside this program, and then on the PATH.
func findSimulator() (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), simulator)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(simulator)
	if err != nil {
		return "", fmt.Errorf("simulate with Volcano's scheduler, which is in a program of its own: %w: build it beside this one, see docs/simulate.md", err)
	}
	return path, nil
}

// readFullState is state with what only a simulation needs.
func (o *options) readFullState(ctx context.Context) (*capture.State, error) {
	switch o.from {
	case "":
		s := &capture.State{Taken: time.Now().UTC().Truncate(time.Second), Scheduling: &capture.Scheduling{}}
		_, err := o.readClusterInto(ctx, s)
		return s, err
	case "-":
		return capture.ReadAll(o.streams.In)
	}
	f, err := os.Open(o.from)
	if err != nil {
		return nil, fmt.Errorf("read the capture: %w", err)
	}
	defer f.Close()
	return capture.ReadAll(f)
}

// readScheduling reads what nodes, pods and queues do not say, if the state is to keep it. What the
// user may not read is noted: a simulation then assumes the shipped configuration, and that there
// are none of the other objects.
func readScheduling(ctx context.Context, core kubernetes.Interface, namespace string, s *capture.State) error {
	if s.Scheduling == nil {
		return nil
	}
	for _, list := range []struct {
		what string
		page pager.ListPageFunc
	}{
		{"priorityclasses.scheduling.k8s.io", func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
			return core.SchedulingV1().PriorityClasses().List(ctx, l)
		}},
		{"poddisruptionbudgets.policy", func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
			return core.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll).List(ctx, l)
		}},
		{"namespaces", func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
			return core.CoreV1().Namespaces().List(ctx, l)
		}},
	} {
		err := pager.New(list.page).EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
			s.Add(object)
			return nil
		})
		switch {
		case apierrors.IsForbidden(err):
			s.Forbidden = append(s.Forbidden, "list "+list.what)
		case err != nil:
			return fmt.Errorf("list %s: %w", list.what, err)
		}
	}
	if err := readSchedulerConfig(ctx, core, namespace, s); err != nil {
		return err
	}
	s.Sort()
	return nil
}

func readSchedulerConfig(ctx context.Context, core kubernetes.Interface, namespace string, s *capture.State) error {
	m, err := core.CoreV1().ConfigMaps(namespace).Get(ctx, schedulerConfigName, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		s.Forbidden = append(s.Forbidden, fmt.Sprintf("get configmaps/%s -n %s", schedulerConfigName, namespace))
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("read ConfigMap %s/%s: %w", namespace, schedulerConfigName, err)
	default:
		if text, ok := m.Data[schedulerConfigKey]; ok {
			s.Scheduling.Config = &text
		}
	}
	return nil
}
