// SPDX-License-Identifier: Apache-2.0

// Package frameworks makes what the operators of other projects make of their objects: Jobs, pods
// and pod groups of the same shape, with the labels, variables, waiting containers and owners that
// matter to a scheduler and a device plugin. The operators themselves are not in the sandbox. The
// versions that the shapes were taken from are in docs/frameworks.md.
//
// Nothing here touches a cluster: who calls creates what is returned, in the order of the list.
package frameworks
