{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* What every workload of the chart takes of its values in the same way. deviceshare.nodes says which
       nodes a pod may run on, its priority, and how its images are pulled. Takes the chart's root, the
       values of the component, and the priority where they name none. */ -}}
{{- define "deviceshare.nodes" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $priority := index . 2 -}}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ kindIs "map" . | ternary . (dict "name" .) | dig "name" "" }}
  {{- end }}
{{- end }}
{{- with $component.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.priorityClassName | default $priority }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- /* Which nodes the device plugin may run on, as JSON. */ -}}
{{- define "deviceshare.nodeSelector" -}}
{{- $operator := ternary (dict .Values.gpuOperator.clientLabel "true") dict .Values.gpuOperator.enabled -}}
{{- toJson (merge dict .Values.devicePlugin.nodeSelector $operator) -}}
{{- end -}}

{{- /* The labels of an object. Takes the chart's root and the labels of the chart itself, or of more special
       values, which those of commonLabels do not replace. No selector of the chart has a common one. */ -}}
{{- define "deviceshare.labels" -}}
labels:
  {{- toYaml (merge (dict "app.kubernetes.io/part-of" "deviceshare") (index . 1) ((index . 0).Values.commonLabels | default dict)) | nindent 2 }}
{{- end -}}

{{- /* Labels and annotations of a component's pods. Takes the chart's root, the name of the workload, the
       values of the component, and the annotations of the chart itself, which those of the values replace. */ -}}
{{- define "deviceshare.metadata" -}}
{{- $component := index . 2 -}}
{{ include "deviceshare.labels" (list (index . 0) (merge (dict "app.kubernetes.io/name" (index . 1)) $component.podLabels)) }}
{{- with merge (dict) $component.podAnnotations (index . 3) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The annotations of a component's service account. Takes the values of the component. */ -}}
{{- define "deviceshare.account" -}}
{{- with (.serviceAccount).annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The image of a component. Takes the chart's root, the values of the component, and the name of its
       image. Values of an earlier version, as with --reuse-values, have no image. */ -}}
{{- define "deviceshare.image" -}}
{{- $common := (index . 0).Values.image -}}
{{- $own := (index . 1).image | default dict -}}
{{- $common.registry }}{{ $own.repository | default (printf "deviceshare/%s" (index . 2)) -}}
{{- if $own.digest }}@{{ $own.digest }}{{ else }}:{{ $own.tag | default $common.tag }}{{ ne (include "deviceshare.fips" (index . 0)) "off" | ternary "-fips" "" }}{{ end -}}
{{- end -}}

{{- /* The value fips: off, on or only. Without quotes YAML reads off and on as booleans. Takes the chart's root. */ -}}
{{- define "deviceshare.fips" -}}
{{- $fips := .Values.fips | default "off" -}}
{{- kindIs "bool" $fips | ternary "on" $fips -}}
{{- end -}}

{{- /* The last variables of a container: those that the values add, and GODEBUG, by which Go's cryptography is
       FIPS 140-3. Two of a name are a mistake for server-side apply. Takes the chart's root and the list of the
       values. */ -}}
{{- define "deviceshare.env" -}}
{{- $fips := include "deviceshare.fips" (index . 0) -}}
{{- $env := index . 1 | default list -}}
{{- if ne $fips "off" -}}
{{- range $env -}}
{{- if eq .name "GODEBUG" -}}
{{- fail "fips: extraEnv sets GODEBUG, as fips does; one of them must go" -}}
{{- end -}}
{{- end -}}
{{- $env = append $env (dict "name" "GODEBUG" "value" (printf "fips140=%s" $fips)) -}}
{{- end -}}
{{- with $env }}
{{- toYaml . }}
{{- end -}}
{{- end -}}

{{- /* The annotations by which a Prometheus without an operator finds the metrics. Takes the port. */ -}}
{{- define "deviceshare.scrape" -}}
{{- toJson (dict "prometheus.io/scrape" "true" "prometheus.io/port" . "prometheus.io/scheme" "https") -}}
{{- end -}}

{{- /* How the pods of a DaemonSet are updated. Takes the value updateStrategy. Two pods on one node at
       once would disturb each other, so there is never a surge. */ -}}
{{- define "deviceshare.daemonSetUpdate" -}}
updateStrategy:
  type: {{ .type }}
  {{- if eq .type "RollingUpdate" }}
  rollingUpdate:
    maxSurge: 0
    maxUnavailable: {{ dig "rollingUpdate" "maxUnavailable" 1 . }}
  {{- end }}
{{- end -}}

{{- /* The pod of a Deployment whose replicas stand in for each other: on different nodes
       where there are some, and with what Pod Security `restricted` asks of a pod. Takes the name and the
       values of the component, and the chart's root. */ -}}
{{- define "deviceshare.replicas" -}}
{{- $selector := dict "matchLabels" (dict "app.kubernetes.io/name" (index . 0)) -}}
{{- $spread := (index . 1).topologySpreadConstraints | default (list (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway")) -}}
topologySpreadConstraints:
  {{- range $spread }}
  - {{ toYaml (hasKey . "labelSelector" | ternary . (merge (dict "labelSelector" $selector) .)) | nindent 4 | trim }}
  {{- end }}
{{ include "deviceshare.user" (index . 2) }}
{{- end -}}

{{- /* Nobody in particular. OpenShift gives each namespace users of its own. Takes the chart's root. */ -}}
{{- define "deviceshare.user" -}}
securityContext:
  runAsNonRoot: true
  {{- if not (.Values.openshift).enabled }}
  runAsUser: 65532
  runAsGroup: 65532
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- /* What Pod Security `restricted` asks of a container. */ -}}
{{- define "deviceshare.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* A drain takes one replica at a time. One that is not ready may always go. Takes the name
       and the chart's root. */ -}}
{{- define "deviceshare.disruption" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ index . 0 }}
  namespace: {{ (index . 1).Release.Namespace }}
  {{- include "deviceshare.labels" (list (index . 1) dict) | nindent 2 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ index . 0 }}
{{- end -}}

{{- /* The rules by which a program asks the API server who may read its pages. */ -}}
{{- define "deviceshare.reviews" -}}
# Whose a token is, and whether that user may read metrics and the ledger: docs/endpoints.md.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}

{{- /* Selects the namespaces whose pods get no device that they do not ask for: all but those of the
       system, of this release, and those that are exempt by name or by one of some labels. */ -}}
{{- define "deviceshare.unaskedNamespaces" -}}
{{- $system := list "kube-node-lease" "kube-public" "kube-system" .Release.Namespace -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values:
      {{- concat $system .Values.unaskedDevices.exemptNamespaces | uniq | sortAlpha | toYaml | nindent 6 }}
  {{- range $key, $value := .Values.unaskedDevices.exemptNamespaceLabels }}
  - {key: {{ $key }}, operator: NotIn, values: [{{ $value | quote }}]}
  {{- end }}
{{- end }}

{{- /* The Secret of the webhook's serving certificate. Each who can make it has one of its own. */ -}}
{{- define "deviceshare.certificateSecret" -}}
{{- $c := .Values.webhook.certificates -}}
{{- get (dict "job" "deviceshare-webhook-serving" "cert-manager" "deviceshare-webhook-issued" "existing" $c.secret) $c.from -}}
{{- end -}}

{{- /* What a Job does that makes or renews the webhook's certificate. */ -}}
{{- define "deviceshare.certify" -}}
backoffLimit: 3
activeDeadlineSeconds: 900
template:
  metadata:
    {{- include "deviceshare.metadata" (list . "deviceshare-webhook-ca" .Values.webhook dict) | nindent 4 }}
  spec:
    serviceAccountName: deviceshare-webhook-ca
    # One that failed stays, so that its log can be read.
    restartPolicy: Never
    {{- with include "deviceshare.nodes" (list . .Values.webhook "system-cluster-critical") }}
    {{- trim . | nindent 4 }}
    {{- end }}
    {{- include "deviceshare.user" . | nindent 4 }}
    containers:
      - name: certify
        image: {{ include "deviceshare.image" (list . .Values.webhook "webhook") }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        args:
          - certify
          - --namespace={{ .Release.Namespace }}
          - --service-name=deviceshare-webhook
          - --serving-secret=deviceshare-webhook-serving
          {{- if ne .Values.unaskedDevices.policy "allow" }}
          - --unasked
          {{- end }}
        {{- with include "deviceshare.env" (list . list) }}
        env:
          {{- . | nindent 10 }}
        {{- end }}
        securityContext:
          {{- include "deviceshare.restricted" . | nindent 10 }}
        resources:
          {{- toYaml .Values.webhook.resources | nindent 10 }}
{{- end }}

{{- /* The names that device-config.yaml gives the resources, as JSON: number, memory, cores, percentage.
       Everything in the chart that names a resource asks here. The text is the value deviceConfig where
       the chart writes it, else what is in the cluster, else the value, else the file of the chart. A
       text of the cluster that nobody can read keeps the names of the file: its mistakes are reported
       by the programs that read it. */ -}}
{{- define "deviceshare.names" -}}
{{- $v := .Values -}}
{{- $live := dig "data" "device-config.yaml" "" (lookup "v1" "ConfigMap" $v.configNamespace "volcano-vgpu-device-config") -}}
{{- $given := or (and $v.createConfig $v.deviceConfig) (not $live) | empty | not -}}
{{- $tree := fromYaml ($given | ternary $v.deviceConfig $live) -}}
{{- $nvidia := kindIs "map" $tree.nvidia | ternary $tree.nvidia dict -}}
{{- $default := (fromYaml (.Files.Get "files/device-config.yaml")).nvidia -}}
{{- $names := dict -}}
{{- range $name, $key := dict "number" "resourceCountName" "memory" "resourceMemoryName" "cores" "resourceCoreName" "percentage" "resourceMemoryPercentageName" -}}
{{- $value := get (hasKey $nvidia $key | ternary $nvidia $default) $key -}}
{{- if not (or (and (eq $name "percentage") (eq (toString $value) "")) (regexMatch "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$" (toString $value))) -}}
{{- if $given -}}
{{- fail (printf "deviceConfig: nvidia.%s: %q is not the name of an extended resource" $key (toString $value)) -}}
{{- end -}}
{{- $value = get $default $key -}}
{{- end -}}
{{- $names = set $names $name $value -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{- /* The scheduler ends when it starts with such a text, and does not go by an edit that has it. */ -}}
{{- define "deviceshare.checkSchedulerConfig" -}}
{{- if trim . }}
{{- $config := fromYaml . }}
{{- with $config.Error }}
{{- fail (printf "\nscheduler.config: %s" .) }}
{{- end }}
{{- $known := list "enqueue" "allocate" "consolidate" "reclaim" "preempt" "backfill" "shuffle" }}
{{- range $name := splitList "," ($config.actions | default "" | toString) }}
{{- if and (trim $name) (not (has (trim $name | lower) $known)) }}
{{- fail (printf "\nscheduler.config: actions: unknown action %q: want some of %s. What Volcano 1.15 calls gangPreempt and gangReclaim, preempt and reclaim do here." (trim $name) (join ", " $known)) }}
{{- end }}
{{- end }}
{{- $found := false }}
{{- range $tier := $config.tiers }}
{{- range $plugin := $tier.plugins }}
{{- if eq $plugin.name "deviceshare" }}
{{- $found = true }}
{{- end }}
{{- end }}
{{- end }}
{{- if not $found }}
{{- fail "\nscheduler.config: tiers: plugin deviceshare is in none of them: pods with devices would be bound without any. Add a line `- name: deviceshare`." }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What is mounted to see the driver: the folder around its root. A mount of the root itself
       that is made after a driver's container has mounted it goes on showing that driver when
       another one is mounted there. */ -}}
{{- define "deviceshare.driverMount" -}}
{{- .Values.devicePlugin.driverRoot | clean | dir }}
{{- end }}

{{- /* Where programs see the driver's root, below the mount /driver-root. */ -}}
{{- define "deviceshare.driverSeen" -}}
{{- $root := .Values.devicePlugin.driverRoot | clean }}
{{- if eq $root "/" }}/driver-root{{ else }}/driver-root/{{ base $root }}{{ end }}
{{- end }}
