// SPDX-License-Identifier: Apache-2.0

package hamicore_test

import (
	"testing"

	"deviceshare/sharing/hamicore"
	"deviceshare/sharing/sharingtest"
)

func TestTheBackendKeepsItsPromises(t *testing.T) { sharingtest.Backend(t, hamicore.New()) }
