"""The one source of what people watch Tenure with.

``python -m scripts.monitoring --write`` makes of it, in ``deploy``: the Grafana dashboard (``panels``), the rules for Prometheus
and the runbook that their alerts link to (``rules``). A unit test fails if the files differ from what is made here, or if an
expression names a metric, a label or a value that ``tenure.metrics`` does not have.
"""
