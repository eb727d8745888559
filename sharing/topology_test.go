// SPDX-License-Identifier: Apache-2.0

package sharing_test

import (
	"testing"

	"deviceshare/sharing"
)

func TestThePathBetweenTwoDevices(t *testing.T) {
	at := func(id string, numa int, links ...sharing.Link) sharing.Device {
		return sharing.Device{ID: sharing.DeviceID(id), NUMA: numa, Links: links}
	}
	to := func(peer, kind string, count int) sharing.Link {
		return sharing.Link{Peer: sharing.DeviceID(peer), Kind: kind, Count: count}
	}
	for name, c := range map[string]struct {
		a, b  sharing.Device
		path  sharing.Path
		links int
	}{
		"nothing is known":                     {at("a", -1), at("b", -1), sharing.PathUnknown, 0},
		"one NUMA node is known":               {at("a", 0), at("b", -1), sharing.PathUnknown, 0},
		"one NUMA node":                        {at("a", 1), at("b", 1), sharing.PathNODE, 0},
		"two NUMA nodes":                       {at("a", 0), at("b", 1), sharing.PathSYS, 0},
		"a switch":                             {at("a", 0, to("b", "pix", 0)), at("b", 1), sharing.PathPIX, 0},
		"switches":                             {at("a", 0, to("b", "pxb", 0)), at("b", 0), sharing.PathPXB, 0},
		"a bridge":                             {at("a", 0, to("b", "phb", 0)), at("b", 0), sharing.PathPHB, 0},
		"bridges":                              {at("a", -1, to("b", "node", 0)), at("b", -1), sharing.PathNODE, 0},
		"CPUs":                                 {at("a", 0, to("b", "sys", 0)), at("b", 0), sharing.PathSYS, 0},
		"links of another device do not count": {at("a", 0, to("c", "nvlink", 4)), at("b", 0), sharing.PathNODE, 0},
		"NVLinks":                              {at("a", 0, to("b", "nvlink", 12)), at("b", 1), sharing.PathNVLink, 12},
		"NVLinks of a node that does not count them": {at("a", 0, to("b", "nvlink", 0)), at("b", 1), sharing.PathNVLink, 1},
		"what the other device says":                 {at("a", 0), at("b", 0, to("a", "nvlink", 2)), sharing.PathNVLink, 2},
		"the better of two that disagree":            {at("a", 0, to("b", "pix", 0)), at("b", 0, to("a", "phb", 0)), sharing.PathPIX, 0},
		"the best of several":                        {at("a", 0, to("b", "sys", 0), to("b", "nvlink", 2), to("b", "nvlink", 4)), at("b", 0), sharing.PathNVLink, 4},
		"more links than there can be":               {at("a", 0, to("b", "nvlink", 1<<40)), at("b", 0), sharing.PathNVLink, 64},
		"a kind that nobody knows":                   {at("a", 0, to("b", "warp", 0)), at("b", 1), sharing.PathSYS, 0},
	} {
		for _, pair := range [][2]*sharing.Device{{&c.a, &c.b}, {&c.b, &c.a}} {
			if path, links := pair[0].PathTo(pair[1]); path != c.path || links != c.links {
				t.Errorf("%s, %s to %s: path %d with %d links, want %d with %d", name, pair[0].ID, pair[1].ID, path, links, c.path, c.links)
			}
		}
	}
}
