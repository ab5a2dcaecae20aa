{{/* The image of Dagster's code, of the drivers and of the executors. */}}
{{- define "glassflow.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}

{{- define "glassflow.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The labels by which the code location's service finds its pods: without those that change with a version. */}}
{{- define "glassflow.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: code-location
{{- end }}

{{- define "glassflow.codeLocation" -}}
{{ .Release.Name }}-code
{{- end }}

{{- define "glassflow.driver" -}}
{{ .Release.Name }}-driver
{{- end }}

{{- define "glassflow.pipelines" -}}
{{ default (printf "%s-pipelines" .Release.Name) .Values.existingPipelines }}
{{- end }}

{{/* The settings of the runner, as its variable takes them: KEY=VALUE without spaces within. */}}
{{- define "glassflow.runnerOptions" -}}
namespace={{ .Release.Namespace }} operator={{ .Values.operator }} image={{ include "glassflow.image" . }}
{{- printf " image_pull_policy=%s" .Values.image.pullPolicy }}
{{- with .Values.image.pullSecrets }}{{ printf " image_pull_secrets=%s" (toJson .) }}{{ end }}
{{- printf " service_account=%s scratch_size=%s" (include "glassflow.driver" .) .Values.driver.scratchSize }}
{{- with .Values.driver.nodeSelector }}{{ printf " node_selector=%s" (toJson .) }}{{ end }}
{{- with .Values.driver.labels }}{{ printf " labels=%s" (toJson .) }}{{ end }}
{{- with .Values.variables }}{{ printf " variables=%s" (toJson .) }}{{ end }}
{{- with .Values.secrets }}{{ printf " secrets=%s" (toJson .) }}{{ end }}
{{- end }}
