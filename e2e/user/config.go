// SPDX-License-Identifier: Apache-2.0

package user

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConfigNamespace is where the administrators' ConfigMaps are.
const ConfigNamespace = "kube-system"

// Configure writes one key of a ConfigMap, as `kubectl edit` or `kubectl apply`
// does.
func (u *User) Configure(ctx context.Context, name, key, text string) error {
	maps := u.client.CoreV1().ConfigMaps(ConfigNamespace)
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ConfigNamespace},
		Data:       map[string]string{key: text},
	}
	_, err := maps.Update(ctx, m, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(ctx, m, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", ConfigNamespace, name, err)
	}
	return nil
}

// ConfigureDevices writes the settings of all devices, ConfigureNodes those of
// nodes, in the schemas of docs/wire.md.
func (u *User) ConfigureDevices(ctx context.Context, yaml string) error {
	return u.Configure(ctx, "volcano-vgpu-device-config", "device-config.yaml", yaml)
}

// ConfigureNodes writes the settings of nodes.
func (u *User) ConfigureNodes(ctx context.Context, json string) error {
	return u.Configure(ctx, "volcano-vgpu-node-config", "config.json", json)
}
