// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"strings"
)

// Card is a model of GPU with 80 GB of memory that can be partitioned.
type Card struct {
	model      string
	capability string // CUDA's compute capability
	sms        int
	mig        string
}

// A100 enters and leaves mode mig by a reset.
func A100() Card { return Card{"NVIDIA A100-SXM4-80GB", "8.0", 108, "capable"} }

// H100 enters and leaves mode mig at once.
func H100() Card { return Card{"NVIDIA H100 80GB HBM3", "9.0", 132, "capable"} }

// Partitioned is the card after an administrator brought it into mode mig.
func (c Card) Partitioned() Card {
	c.mig = "enabled"
	return c
}

// CardMiB is the memory of a Card.
const CardMiB = 81920

// Topology is the text of a machine with these cards on two NUMA nodes, the first half on the
// first.
func Topology(cards ...Card) string {
	var b strings.Builder
	b.WriteString("fakegpu 1\ndriver 580.95.05 cuda 13.0\n")
	for i, c := range cards {
		fmt.Fprintf(&b, "gpu model=%q memory=%dMiB cc=%s sms=%d numa=%d mig=%s pci=0000:%02x:00.0\n",
			c.model, CardMiB, c.capability, c.sms, 2*i/len(cards), c.mig, 7+8*i)
	}
	return b.String()
}
