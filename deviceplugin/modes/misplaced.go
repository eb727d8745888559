// SPDX-License-Identifier: Apache-2.0

package modes

// Misplaced is the answer when this node will never start the container as it was
// placed: the device is in another mode by now, the partitions were chosen under
// geometries that are no longer in force, or somebody else has the place. Trying
// again does not help; the pod has to be placed anew.
type Misplaced struct {
	Why string
}

// Error implements error.
func (m *Misplaced) Error() string { return m.Why }
