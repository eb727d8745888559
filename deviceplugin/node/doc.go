// SPDX-License-Identifier: Apache-2.0

// Package node is the model of one node: what is known about its devices, what
// may be done with them, and what should be done next. It is pure: the same state
// and the same event give the same answers.
//
//	            events                    snapshot
//	driver ───────┐                  ┌──► published inventory, kubelet's slots
//	settings ─────┤   ┌──────────┐   │
//	kubelet ──────┼──►│  Reduce  │───┼──► Admit: may this container start, with what
//	pods ─────────┤   └──────────┘   │
//	looks, steps ─┘                  ├──► Plan: looks, mode changes, releases
//	      ▲                          │
//	      └───── carried out ◄───────┘    Diff(old, new): events for people, metrics
//
// A State is immutable. One writer folds events into it with Reduce; readers get
// snapshots and keep them as long as they like.
//
// Every device is in exactly one Condition. What the scheduler, the kubelet, a
// starting container and a mode change may do with a device is read in one table,
// see Kind.May.
//
// A mode change goes through these steps. The agent holds the device's lock while
// it looks and sends Looked, and whoever starts a container holds it from Admit to
// the record, so that neither acts on what the other has just made untrue:
//
//	Unchecked ──Looked──► Ready                         nothing is to be done
//	    ▲        │
//	    │        ├──────► Waiting ──Looked──► ...       pods hold it in another mode
//	    │        │
//	    │        └──────► Changing ──ModeEntered──► Ready
//	    │                    │
//	 an edit                 └──ChangeFailed──► Failing or NeedsAdministrator
//	                                                └──Looked──► tried again
package node
