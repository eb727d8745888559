// SPDX-License-Identifier: Apache-2.0

package timeslicing_test

import (
	"testing"

	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/timeslicing"
)

func TestTheBackendKeepsItsPromises(t *testing.T) { sharingtest.Backend(t, timeslicing.New()) }
