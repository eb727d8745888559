// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"testing"

	"deviceshare/sharing/mig"
	"deviceshare/sharing/sharingtest"
)

func TestTheBackendKeepsItsPromises(t *testing.T) { sharingtest.Backend(t, mig.New()) }
