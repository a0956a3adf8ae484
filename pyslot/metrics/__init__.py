"""Metrics of a limiter, for prometheus_client (`pyslot.metrics.prometheus`) and OpenTelemetry (`...opentelemetry`)."""
