// SPDX-License-Identifier: Apache-2.0

// Package mirror answers exporters as the kubelet's podresources API does, with the devices that
// containers really have.
//
// NVIDIA's DCGM exporter asks that API which pod has which device. Of shared devices the kubelet
// knows slots only, which name no device. So this is the same API on a socket beside the kubelet's:
// it passes each question on, and replaces slots by the UUIDs of devices and partitions in the form
// of NVIDIA's own device plugin.
package mirror
