// SPDX-License-Identifier: Apache-2.0

package queues

import (
	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing/quota"
)

// doubts is what was reported of limits that cannot be meant. The session goroutine owns it.
type doubts struct {
	// total is what the devices of the cluster have.
	total quota.Amounts
	// told are the reports that still hold, by queue and text.
	told map[[2]string]struct{}
}

// ReportDoubts tells the authors of queues about limits that they cannot have meant, each once
// until it is mended. Devices that come and go may change the text, and then it is told again.
func (m *Memory) ReportDoubts(ssn *framework.Session, settings *nodes.Settings, report func(queue *corev1.ObjectReference, text string)) {
	names, told := settings.LimitNames(), map[[2]string]struct{}{}
	for _, info := range ssn.Queues {
		if info == nil || info.Queue == nil {
			continue
		}
		spec := &info.Queue.Spec
		for _, text := range quota.Doubts(nodes.QueueEntries(spec.Capability, spec.Deserved, spec.Guarantee.Resource), names, m.doubts.total) {
			key := [2]string{info.Name, text}
			told[key] = struct{}{}
			if _, done := m.doubts.told[key]; !done {
				report(&corev1.ObjectReference{
					APIVersion: "scheduling.volcano.sh/v1beta1", Kind: "Queue", Name: info.Name, UID: info.Queue.UID,
				}, text)
			}
		}
	}
	m.doubts.told = told
}
