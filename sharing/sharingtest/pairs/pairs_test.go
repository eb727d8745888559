// SPDX-License-Identifier: Apache-2.0

package pairs_test

import (
	"testing"

	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/sharingtest/pairs"
)

func TestTheBackendKeepsItsPromises(t *testing.T) { sharingtest.Backend(t, pairs.New()) }
