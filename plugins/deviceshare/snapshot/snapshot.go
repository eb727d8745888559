// SPDX-License-Identifier: Apache-2.0

// Package snapshot shows the nodes, jobs and pods of a session of Volcano to package nodes.
package snapshot

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	clientcache "k8s.io/client-go/tools/cache"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/nodes"
)

// snapshot shows a session's nodes, jobs and pods to package nodes.
type snapshot struct {
	nodes map[string]*api.NodeInfo
	jobs  map[api.JobID]*api.JobInfo
	hosts []nodes.Host
	pods  corelisters.PodLister
}

// Of returns the snapshot of a session, with the pods of the API server.
func Of(ssn *framework.Session, pods corelisters.PodLister) nodes.Snapshot {
	s := &snapshot{nodes: ssn.Nodes, jobs: ssn.Jobs, hosts: make([]nodes.Host, 0, len(ssn.NodeList)), pods: pods}
	for _, info := range ssn.NodeList {
		s.hosts = append(s.hosts, host{info})
	}
	return s
}

func (s *snapshot) Hosts() []nodes.Host { return s.hosts }

func (s *snapshot) Host(name string) nodes.Host {
	if info, ok := s.nodes[name]; ok {
		return host{info}
	}
	return nil
}

func (s *snapshot) Assigned(job string, pod types.UID, node string) *corev1.Pod {
	if j, ok := s.jobs[api.JobID(job)]; ok {
		if t, ok := j.Tasks[api.TaskID(pod)]; ok && t.NodeName == node {
			return t.Pod
		}
	}
	return nil
}

func (s *snapshot) Pods() corelisters.PodLister { return s.pods }

// host is one node of a snapshot.
type host struct{ info *api.NodeInfo }

func (h host) Name() string { return h.info.Name }

func (h host) Node() *corev1.Node { return h.info.Node }

func (h host) Len() int { return len(h.info.Tasks) }

func (h host) ShowsExactly(pods map[string]*corev1.Pod) bool {
	if len(pods) != len(h.info.Tasks) {
		return false
	}
	for key, t := range h.info.Tasks {
		if pods[string(key)] != t.Pod {
			return false
		}
	}
	return true
}

func (h host) Pods() iter.Seq2[string, *corev1.Pod] {
	return func(yield func(string, *corev1.Pod) bool) {
		for key, t := range h.info.Tasks {
			if !yield(string(key), t.Pod) {
				return
			}
		}
	}
}

// Pod implements nodes.Host. Volcano keys pods by namespace and name.
func (h host) Pod(name types.NamespacedName) *corev1.Pod {
	if t, ok := h.info.Tasks[api.TaskID(clientcache.NewObjectName(name.Namespace, name.Name).String())]; ok {
		return t.Pod
	}
	return nil
}
