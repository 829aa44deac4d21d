{{- define "latchkey.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "latchkey.selector" -}}
app.kubernetes.io/name: latchkey
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "latchkey.labels" -}}
{{ include "latchkey.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
