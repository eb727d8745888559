// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"deviceshare/config"
	"deviceshare/view/capture"
)

// ReadConfig reads the device configuration where the scheduler looks for it: in the namespace that
// is named, then in volcano-system. Whoever may not read it sees the default names.
func ReadConfig(ctx context.Context, core kubernetes.Interface, first string, s *capture.State) error {
	for _, namespace := range slices.Compact([]string{first, "volcano-system"}) {
		m, err := core.CoreV1().ConfigMaps(namespace).Get(ctx, config.DeviceName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case apierrors.IsForbidden(err):
			s.Forbidden = append(s.Forbidden, fmt.Sprintf("get configmaps/%s -n %s", config.DeviceName, namespace))
			return nil
		case err != nil:
			return fmt.Errorf("read ConfigMap %s/%s: %w", namespace, config.DeviceName, err)
		}
		if text, ok := m.Data[config.DeviceKey]; ok {
			s.DeviceConfig = &text
		}
		return nil
	}
	return nil
}
