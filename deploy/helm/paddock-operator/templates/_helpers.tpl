{{/* The chart's name, or nameOverride. */}}
{{- define "paddock-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* What everything of a namespace is called. 52: Kubernetes adds to a Deployment's name. */}}
{{- define "paddock-operator.fullname" -}}
{{- $name := include "paddock-operator.name" . }}
{{- $both := printf "%s-%s" .Release.Name $name }}
{{- if contains $name .Release.Name }}
{{- $both = .Release.Name }}
{{- end }}
{{- default $both .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{/* What everything of the cluster is called: releases of one name may be in two namespaces. */}}
{{- define "paddock-operator.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "paddock-operator.fullname" .) }}
{{- end }}

{{/* What selects the operator's pods; a Deployment's selector cannot be changed. */}}
{{- define "paddock-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "paddock-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The labels of everything. */}}
{{- define "paddock-operator.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{ include "paddock-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: paddock
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The account of the operator. */}}
{{- define "paddock-operator.serviceAccountName" -}}
{{- $made := ternary (include "paddock-operator.fullname" .) "default" .Values.serviceAccount.create }}
{{- default $made .Values.serviceAccount.name }}
{{- end }}

{{/* The account of the operator, as the subject of a binding. */}}
{{- define "paddock-operator.subjects" -}}
subjects:
  - kind: ServiceAccount
    name: {{ include "paddock-operator.serviceAccountName" . }}
    namespace: {{ .Release.Namespace }}
{{- end }}

{{/* The image with its tag or digest. */}}
{{- define "paddock-operator.image" -}}
{{- with .Values.image }}
{{- if .digest }}
{{- printf "%s@%s" .repository .digest }}
{{- else }}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Who may do what: (list . "manager"). The rules are those of the operator's own tables. */}}
{{- define "paddock-operator.rules" -}}
rules:
  {{- $rules := index ((index . 0).Files.Get "files/rules.yaml" | fromYaml) (index . 1) }}
  {{- toYaml $rules | nindent 2 }}
{{- end }}

{{/* The Secret of the metrics' certificate. */}}
{{- define "paddock-operator.certSecret" -}}
{{- default (printf "%s-metrics" (include "paddock-operator.fullname" .)) .Values.metrics.certSecret }}
{{- end }}

{{/* Whether something of the metrics' protection is to be made. */}}
{{- define "paddock-operator.hasSecureMetrics" -}}
{{- if and .Values.metrics.enabled .Values.metrics.secure }}yes{{ end }}
{{- end }}

{{/* Namespace and name of the release that an object belongs to: "/" when to none. */}}
{{- define "paddock-operator.owner" -}}
{{- $notes := dig "metadata" "annotations" (dict) . }}
{{- printf "%s/%s" (get $notes "meta.helm.sh/release-namespace") (get $notes "meta.helm.sh/release-name") }}
{{- end }}

{{/*
Whether the definition is this release's. One of another release, or that was applied by hand, is
left alone: jobs of others depend on it.
*/}}
{{- define "paddock-operator.ownsCrd" -}}
{{- if .Values.crds.install }}
{{- $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "paddlejobs.batch.paddlepaddle.org" }}
{{- $ours := printf "%s/%s" .Release.Namespace .Release.Name }}
{{- if or (not $there) (eq (include "paddock-operator.owner" $there) $ours) }}yes{{ end }}
{{- end }}
{{- end }}

{{/*
Fails when another operator serves all namespaces beside this one, or one of them beside this one
for all. (Helm itself refuses two for all, or two for one namespace: their bindings have one name.)
*/}}
{{- define "paddock-operator.refuseOthers" -}}
{{- $binding := "paddle-manager-rolebinding" }}
{{- $ours := printf "%s/%s" .Release.Namespace .Release.Name }}
{{- $others := list (lookup "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" "" $binding) }}
{{- if not .Values.watchNamespaces }}
{{- $others = dig "items" (list) (lookup "rbac.authorization.k8s.io/v1" "RoleBinding" "" "") }}
{{- end }}
{{- range $others }}
{{- $owner := include "paddock-operator.owner" . }}
{{- if and (eq $binding (dig "metadata" "name" "" .)) (ne $owner $ours) }}
{{- $served := dig "metadata" "namespace" "all namespaces" . }}
{{- $who := ternary "an operator of kubectl apply" (printf "release %s" $owner) (eq $owner "/") }}
{{- fail (printf "%s serves %s already, and two operators must not serve the same jobs: give watchNamespaces, or remove it" $who $served) }}
{{- end }}
{{- end }}
{{- end }}
