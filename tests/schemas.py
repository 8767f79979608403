"""A program: is what stands on its standard input as its schema wants it? A process of its own, with what `make charts` has fetched.

Unknown fields are faults too: Kubernetes would drop them with a warning at most.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from typing import Any

RELEASES = ("1.27", "1.37")
"""The oldest Kubernetes that the chart allows, and the newest that there was; as `scripts/get_chart_tools.py` fetches them."""


OPERATORS = {
    "keda.sh/v1alpha1": "cloudcoil.models.keda.v1alpha1",
    "monitoring.coreos.com/v1": "cloudcoil.models.prometheus_operator.v1",
}
"""Who is no part of Kubernetes itself: a class for each kind, made of the operator's own definitions."""


def manifest(one: dict[str, Any]) -> str:
    """What Kubernetes itself knows, the oldest and the newest, or the operator whose object it is."""
    operator = OPERATORS.get(one["apiVersion"])
    return kubernetes(one) if operator is None else operated(one, operator)


def kubernetes(one: dict[str, Any]) -> str:
    """What both releases know."""
    schemas = importlib.import_module("kubernetes_validate")
    for release in RELEASES:
        try:
            schemas.validate(one, release, strict=True)
        except schemas.ValidationError as error:
            return f"{release}: {error}"
    return ""


def operated(one: dict[str, Any], operator: str) -> str:
    """What the operator knows of this kind."""
    pydantic = importlib.import_module("pydantic")
    pydantic.BaseModel.model_config["defer_build"] = True  # of hundreds of classes these few are used
    model = getattr(importlib.import_module(operator), one["kind"])
    try:
        known = model.model_validate(one).model_dump(by_alias=True, exclude_unset=True, mode="json")
    except pydantic.ValidationError as error:
        return str(error)
    return ", ".join(f"unknown: {path}" for path in unknown(one, known))


def unknown(given: Any, known: Any, path: str = "") -> Iterator[str]:
    """Paths of what is in one and not in the other."""
    if isinstance(given, dict) and isinstance(known, dict):
        for name, value in given.items():
            yield from unknown(value, known[name], f"{path}.{name}") if name in known else [f"{path}.{name}"]
    elif isinstance(given, list) and isinstance(known, list):
        for number, (one, other) in enumerate(zip(given, known, strict=True)):
            yield from unknown(one, other, f"{path}[{number}]")


def compose(one: dict[str, Any]) -> str:
    """What the compose specification knows; it does not resolve YAML's merge keys itself."""
    schema = importlib.import_module("compose_spec")
    try:
        schema.PyCompose.from_yaml(json.dumps(one))  # JSON is YAML
    except ValueError as error:
        return str(error)
    return ""


def main() -> None:
    """Answer with a list of faults, an empty text for what has none."""
    asked = json.load(sys.stdin)
    check = {"manifest": manifest, "compose": compose}[asked["kind"]]
    json.dump([check(json.loads(text)) for text in asked["texts"]], sys.stdout)


if __name__ == "__main__":
    main()
