// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	"deviceshare/sharing"
	"deviceshare/sharing/upgrade"
)

// Labels of a node by which NVIDIA's GPU operator and mig-manager work.
const (
	// labelMIGManager deploys mig-manager to the node if it is "true". The operator sets it on
	// nodes with MIG unless it is there already, whatever its value.
	labelMIGManager = "nvidia.com/gpu.deploy.mig-manager"
	// labelMIGConfig names the partitions that mig-manager makes.
	labelMIGConfig = "nvidia.com/mig.config"
	// labelMIGState is what mig-manager says about them.
	labelMIGState = "nvidia.com/mig.config.state"
)

// Rival says by which labels of the node another program makes and destroys the partitions of its
// devices, and what to do about it; false if none does. mig-manager makes all devices as its
// configuration says, at its start and when that label changes, and destroys what others made.
func Rival(labels map[string]string) (why string, is bool) {
	asked := ""
	if c := labels[labelMIGConfig]; c != "" {
		asked = fmt.Sprintf(" (%s=%s)", labelMIGConfig, c)
	}
	if labels[labelMIGManager] == "true" {
		return fmt.Sprintf("NVIDIA's mig-manager is deployed on this node and may destroy its partitions%s: "+
			"label the node %s=false, or give its devices another mode", asked, labelMIGManager), true
	}
	switch state := labels[labelMIGState]; state {
	case "pending", "rebooting":
		return fmt.Sprintf("NVIDIA's mig-manager is changing the partitions of this node%s: "+
			"wait until it has, or remove the label %s=%s if it is gone", asked, labelMIGState, state), true
	}
	return "", false
}

// Labelled: the labels of the node are known.
type Labelled struct{ Labels map[string]string }

func (e Labelled) applyTo(s *State) {
	s.claim.upgrade = upgrade.PhaseOf(e.Labels)
	if why, is := Rival(e.Labels); is {
		ServiceLost{sharing.MIG, why}.applyTo(s)
		return
	}
	ServiceBack{sharing.MIG}.applyTo(s)
}

// IsNews reports whether these labels would change the state.
func (s State) IsNews(e Labelled) bool {
	why, is := Rival(e.Labels)
	known, was := s.modeInterruption(sharing.MIG)
	return is != was || why != known || s.claim.upgrade != upgrade.PhaseOf(e.Labels)
}
