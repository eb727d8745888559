// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/config"
	"deviceshare/plugins/admission"
)

// A reader copies the example of docs/use.md: the webhook has nothing to add or refuse.
func TestTheExampleOfTheUsePageIsAccepted(t *testing.T) {
	settings := admission.NewSettings(config.DefaultDevice(), []string{"volcano"})
	pods := 0
	for _, text := range blocks(read(t, "../docs/use.md"), "yaml") {
		for _, o := range decode(t, text) {
			p, is := o.(*corev1.Pod)
			if !is {
				t.Fatalf("nobody loads a %T", o)
			}
			pods++
			if added := admission.Complete(p, settings); len(added) > 0 {
				t.Errorf("the webhook adds %v", added)
			}
			if verdict := admission.Review(p, settings); verdict.Refused() || len(verdict.Warnings) > 0 {
				t.Errorf("pod %s: %s %q", p.Name, verdict.Message(), verdict.Warnings)
			}
		}
	}
	if pods == 0 {
		t.Error("the page has no pod")
	}
}
