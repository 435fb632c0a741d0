"""Traces of turns in OpenTelemetry's form. `assembly/` imports it only if tracing is on."""
