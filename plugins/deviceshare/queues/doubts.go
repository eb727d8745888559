// SPDX-License-Identifier: Apache-2.0

package queues

import (
	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing/events"
	"deviceshare/sharing/quota"
)

// doubts is what was reported of limits that cannot be meant. The session goroutine owns it.
type doubts struct {
	// total is what the devices of the cluster have.
	total quota.Amounts
	// told are the reports that still hold, by object and text.
	told map[[2]string]struct{}
}

// ReportDoubts tells the authors of queues and of ResourceQuotas about limits that they cannot have
// meant, each once until it is mended. Devices that come and go may change the text, and then it is
// told again.
func (m *Memory) ReportDoubts(ssn *framework.Session, s *Snapshot, report func(of *corev1.ObjectReference, reason, text string)) {
	names, told := s.Settings.LimitNames(), map[[2]string]struct{}{}
	tell := func(of *corev1.ObjectReference, reason, text string) {
		key := [2]string{of.Kind + " " + of.Namespace + "/" + of.Name, text}
		told[key] = struct{}{}
		if _, done := m.doubts.told[key]; !done {
			report(of, reason, text)
		}
	}
	for _, info := range ssn.Queues {
		if info == nil || info.Queue == nil {
			continue
		}
		spec := &info.Queue.Spec
		for _, text := range quota.Doubts(nodes.QueueEntries(spec.Capability, spec.Deserved, spec.Guarantee.Resource), names, m.doubts.total) {
			tell(&corev1.ObjectReference{
				APIVersion: "scheduling.volcano.sh/v1beta1", Kind: "Queue", Name: info.Name, UID: info.Queue.UID,
			}, events.QueueLimitDoubtful, text)
		}
	}
	for i := range s.Quotas {
		for _, text := range s.Settings.QuotaDoubts(&s.Quotas[i], m.doubts.total) {
			of := s.Quotas[i].Object
			tell(&corev1.ObjectReference{
				APIVersion: "v1", Kind: "ResourceQuota", Namespace: of.Namespace, Name: of.Name, UID: of.UID,
			}, events.NamespaceQuotaDoubtful, text)
		}
	}
	m.doubts.told = told
}
