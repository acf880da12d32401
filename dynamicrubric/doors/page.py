"""The server's page for people: its OpenAPI description as plain HTML, nothing from a network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any, Final

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;"
    "color:#222;background:#fff}table{border-collapse:collapse}td,th{text-align:left;"
    "padding:.2em 1em .2em 0;border-bottom:1px solid #ddd;vertical-align:top}"
    "code,pre{font-family:ui-monospace,monospace;font-size:.9em}"
    "pre{background:#f5f5f5;padding:1em;overflow:auto}h2{margin-top:2em}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}"
    "td,th{border-color:#444}pre{background:#242424}}"
)
_EXAMPLE: Final = """curl -s http://127.0.0.1:8100/v1/score \\
  -H 'Content-Type: application/json' \\
  -d '{"prompt": "Name a prime.", "responses": ["Seven.", "Nine.", "7 is one."]}'"""


def docs_page(document: Mapping[str, Any]) -> str:
    """Return the page of an OpenAPI document."""
    paths = [
        _operation(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [_schema(name, schema) for name, schema in document["components"]["schemas"].items()]
    info = document["info"]
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(info['title'])}"
        f"</title><meta name='viewport' content='width=device-width'><style>{_STYLE}</style></head>"
        f"<body><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        f"<p>{escape(info['summary'])} For machines: <a href='openapi.json'>openapi.json</a>.</p>"
        f"<pre>{escape(_EXAMPLE)}</pre>{''.join(paths)}<h1>Documents</h1>{''.join(schemas)}"
        "</body></html>"
    )


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    takes = f"<p>Takes {_type(body['schema'])}.</p>" if "schema" in body else ""
    rows = "".join(
        f"<tr><td>{escape(code)}</td><td>{escape(str(answer.get('description', '')))}</td>"
        f"<td>{_answer(answer)}</td></tr>"
        for code, answer in sorted(operation["responses"].items())
    )
    return (
        f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2>"
        f"<p>{escape(operation.get('description', ''))}</p>{takes}<table>{rows}</table>"
    )


def _answer(answer: Mapping[str, Any]) -> str:
    schema = answer.get("content", {}).get("application/json", {}).get("schema")
    return _type(schema) if schema else ""


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    needed = set(schema.get("required", ()))
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code>{'' if field in needed else ' (optional)'}</td>"
        f"<td>{_type(kind)}</td><td>{escape(str(kind.get('description', '')))}</td></tr>"
        for field, kind in schema.get("properties", {}).items()
    )
    return (
        f"<h2 id='{escape(name)}'>{escape(name)}</h2><p>{escape(schema.get('description', ''))}</p>"
        f"<table>{rows}</table>"
    )


def _type(schema: Mapping[str, Any]) -> str:
    """Return a schema's type as a reader says it."""
    if "$ref" in schema:
        name = escape(str(schema["$ref"]).rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"a list of {_type(schema.get('items', {}))}"
    if "enum" in schema:
        return escape(" or ".join(json.dumps(value) for value in schema["enum"]))
    return escape(str(schema.get("type", "anything")))
