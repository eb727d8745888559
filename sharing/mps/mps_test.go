// SPDX-License-Identifier: Apache-2.0

package mps_test

import (
	"testing"

	"deviceshare/sharing/mps"
	"deviceshare/sharing/sharingtest"
)

func TestTheBackendKeepsItsPromises(t *testing.T) { sharingtest.Backend(t, mps.New()) }
