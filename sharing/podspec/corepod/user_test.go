// SPDX-License-Identifier: Apache-2.0

package corepod_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

func TestTheUserOfAContainerReachesItsRequest(t *testing.T) {
	root, alice := int64(0), int64(1000)
	main := corev1.Container{Name: "main", Resources: corev1.ResourceRequirements{Limits: list(map[string]string{wire.ResourceNumber: "1"})}}
	own := main
	own.SecurityContext = &corev1.SecurityContext{RunAsUser: &root}
	for name, tc := range map[string]struct {
		pod       *corev1.PodSecurityContext
		container corev1.Container
		want      sharing.User
	}{
		"nobody says":         {nil, main, sharing.User{}},
		"the pod says":        {&corev1.PodSecurityContext{RunAsUser: &alice}, main, sharing.KnownUser(1000)},
		"the container says":  {nil, own, sharing.KnownUser(0)},
		"the container's own": {&corev1.PodSecurityContext{RunAsUser: &alice}, own, sharing.KnownUser(0)},
	} {
		t.Run(name, func(t *testing.T) {
			read := corepod.Read(&corev1.Pod{Spec: corev1.PodSpec{SecurityContext: tc.pod, Containers: []corev1.Container{tc.container}}})
			req, mistakes := request.Rules{Names: podspec.DefaultNames(), Factor: 1}.Read(&read)
			if len(mistakes) > 0 || len(req.Requests) != 1 || req.Requests[0].User != tc.want {
				t.Errorf("the request is %+v %v, want %+v", req.Requests, mistakes, tc.want)
			}
		})
	}
}
