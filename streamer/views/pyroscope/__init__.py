"""The part of Pyroscope's querier.v1 that Grafana's data source "Grafana Pyroscope" asks for (docs/grafana.md)."""
