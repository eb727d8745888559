// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"

	"k8s.io/client-go/kubernetes"

	"deviceshare/plugins/deviceshare"
)

// configFeed follows the ConfigMap that the plugin's arguments name.
type configFeed struct {
	client kubernetes.Interface
	report *events
	apply  func(deviceshare.Settings)

	mu              sync.Mutex
	namespace, name string
}

// Use implements deviceshare.ConfigSource.
func (f *configFeed) Use(namespace, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.namespace == namespace && f.name == name {
		return
	}
	f.namespace, f.name = namespace, name
}
