// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"deviceshare/sharing/podspec"
)

// isolationFlags are the flags that say which pods may have devices.
type isolationFlags struct {
	Rules podspec.IsolationRules
}

// defaultIsolationFlags know the RuntimeClasses that NVIDIA's GPU operator makes.
func defaultIsolationFlags() isolationFlags {
	return isolationFlags{Rules: podspec.IsolationRules{RuntimeClasses: []string{"nvidia", "nvidia-cdi", "nvidia-legacy"}}}
}

func (i *isolationFlags) addFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&i.Rules.RuntimeClasses, "runtime-classes", i.Rules.RuntimeClasses,
		"RuntimeClasses that pods with devices may name; * is any. Pods that name none are always fine")
	f.BoolVar(&i.Rules.UserNamespaces, "user-namespaces", i.Rules.UserNamespaces, "accept pods with devices and hostUsers: false")
}

func (i *isolationFlags) findMistakes() (wrong []error) {
	for _, name := range i.Rules.RuntimeClasses {
		if name != podspec.AnyRuntimeClass && len(validation.IsDNS1123Subdomain(name)) > 0 {
			wrong = append(wrong, fmt.Errorf("--runtime-classes: %q is not the name of a RuntimeClass", name))
		}
	}
	if len(i.Rules.RuntimeClasses) > 1 && slices.Contains(i.Rules.RuntimeClasses, podspec.AnyRuntimeClass) {
		wrong = append(wrong, fmt.Errorf("--runtime-classes: %s stands for all names; leave out the others", podspec.AnyRuntimeClass))
	}
	return wrong
}
