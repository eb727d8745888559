// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// Workload is a list of pods with its name.
type Workload struct {
	Name string
	Pods []Pod
}

// Load reads the folder of a trace: the list of nodes with devices, *node_list_gpu_node.csv,
// else the only *node_list*.csv, and every *pod_list_NAME.csv. With only, it reads the workload
// of that name.
func Load(dir, only string) ([]Node, []Workload, error) {
	lists, _ := filepath.Glob(filepath.Join(dir, "*node_list*.csv"))
	if with, _ := filepath.Glob(filepath.Join(dir, "*node_list_gpu_node.csv")); len(with) == 1 {
		lists = with
	}
	if len(lists) != 1 {
		return nil, nil, fmt.Errorf("read the trace in %q: %d lists of nodes (*node_list*.csv), want one", dir, len(lists))
	}
	nodes, err := read(lists[0], ReadNodes)
	if err != nil {
		return nil, nil, err
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*pod_list_*.csv"))
	var workloads []Workload
	for _, file := range files {
		_, name, _ := strings.Cut(filepath.Base(file), "pod_list_")
		if name = strings.TrimSuffix(name, ".csv"); only != "" && name != only {
			continue
		}
		pods, err := read(file, ReadPods)
		if err != nil {
			return nil, nil, err
		}
		workloads = append(workloads, Workload{Name: name, Pods: pods})
	}
	if len(workloads) == 0 {
		return nil, nil, fmt.Errorf("read the trace in %q: no list of pods *pod_list_%s.csv", dir, only)
	}
	return nodes, workloads, nil
}

func read[T any](file string, reader func(io.Reader) ([]T, error)) ([]T, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	defer func() { _ = f.Close() }()
	out, err := reader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return out, nil
}

// Mean returns the mean and the standard deviation.
func Mean(of []float64) (mean, sd float64) {
	for _, x := range of {
		mean += x / float64(len(of))
	}
	for _, x := range of {
		sd += (x - mean) * (x - mean) / math.Max(1, float64(len(of)-1))
	}
	return mean, math.Sqrt(sd)
}
