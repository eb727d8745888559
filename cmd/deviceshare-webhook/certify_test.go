// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"deviceshare/plugins/admission/registration"
)

func TestMistakesOfCertifyAreToldTogether(t *testing.T) {
	c := certifyCommand()
	c.SetArgs([]string{"--namespace=ns", "--authorities-secret=a", "--serving-secret=a", "--patience=-1s"})
	c.SilenceErrors, c.SilenceUsage = true, true
	err := c.Execute()
	for _, part := range []string{"--service-name", "two Secrets", "--patience=-1s", "certify --help"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}

// registered are configurations as the chart makes them, by name.
func registered(names ...string) client.Client {
	var objects []client.Object
	service := func() admissionv1.WebhookClientConfig {
		return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "ns", Name: "webhook"}}
	}
	for _, name := range names {
		m := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
		m.Webhooks = []admissionv1.MutatingWebhook{{Name: map[string]string{registration.Name: "mutate.deviceshare.volcano.sh"}[name], ClientConfig: service()}}
		if name == registration.UnaskedName {
			m.Webhooks[0].Name = "void.deviceshare.volcano.sh"
		}
		objects = append(objects, m)
		if name == registration.Name {
			v := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
			for _, hook := range []string{"validate.deviceshare.volcano.sh", "guard.deviceshare.volcano.sh"} {
				v.Webhooks = append(v.Webhooks, admissionv1.ValidatingWebhook{Name: hook, ClientConfig: service()})
			}
			objects = append(objects, v)
		}
	}
	return fake.NewClientBuilder().WithObjects(objects...).Build()
}

func TestEveryConfigurationOfTheChartIsFilled(t *testing.T) {
	for name, tt := range map[string]struct {
		there   []string
		unasked bool
		says    string // of the error
	}{
		"the usual two":                        {there: []string{registration.Name}},
		"that for pods that ask for nothing":   {there: []string{registration.Name, registration.UnaskedName}, unasked: true},
		"which is not there":                   {there: []string{registration.Name}, unasked: true, says: "set unaskedDevices.policy of the chart"},
		"none, since the chart comes just now": {says: "create it with the chart"},
	} {
		t.Run(name, func(t *testing.T) {
			c := registered(tt.there...)
			err := chartPublisher{c, tt.unasked}.Publish(t.Context(), []byte("CA"))
			if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("got %v, want %q", err, tt.says)
			}
			for _, name := range tt.there {
				m := &admissionv1.MutatingWebhookConfiguration{}
				if err := c.Get(t.Context(), client.ObjectKey{Name: name}, m); err != nil || len(m.Webhooks) != 1 || string(m.Webhooks[0].ClientConfig.CABundle) != "CA" {
					t.Errorf("%s: %v, %+v", name, err, m.Webhooks)
				}
			}
		})
	}
}
