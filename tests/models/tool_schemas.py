"""Holds parameters of functions as they are met: flat, nested, with lists, choices, bounds and references."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]  # as a client writes it

SCHEMAS: dict[str, Schema] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
    "light": {
        "type": "object",
        "properties": {
            "room": {"type": "string", "maxLength": 40},
            "on": {"type": "boolean"},
            "level": {"type": "integer", "minimum": 0, "maximum": 100, "multipleOf": 5},
        },
        "required": ["room", "on"],
    },
    "order": {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "minItems": 1,
                "maxItems": 3,
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "minLength": 1, "maxLength": 30},
                        "quantity": {"type": "integer", "minimum": 1, "maximum": 20},
                        "extras": {"type": "array", "items": {"enum": ["milk", "sugar"]}, "uniqueItems": True},
                    },
                    "required": ["name", "quantity"],
                },
            },
            "note": {"anyOf": [{"type": "string", "maxLength": 60}, {"type": "null"}], "default": None},
        },
        "required": ["items"],
    },
    "transfer": {
        "type": "object",
        "properties": {
            "amount": {"type": "number", "exclusiveMinimum": 0, "maximum": 10000.5},
            "currency": {"enum": ["EUR", "USD", "GBP"]},
            "from": {"$ref": "#/$defs/Account"},
            "to": {"$ref": "#/$defs/Account"},
        },
        "required": ["amount", "currency", "to"],
        "$defs": {
            "Account": {
                "title": "Account",
                "type": "object",
                "properties": {
                    "owner": {"type": "string", "maxLength": 30},
                    "number": {"type": "integer", "minimum": 1},
                },
                "required": ["owner", "number"],
                "additionalProperties": False,
            }
        },
    },
    "meeting": {
        "type": "object",
        "properties": {
            "title": {"type": "string", "minLength": 3, "maxLength": 50},
            "day": {"type": "string", "format": "date"},
            "people": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 4},
            "remind": {"type": ["boolean", "null"]},
        },
        "required": ["title", "day", "people"],
    },
    "search": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "maxLength": 60},
            "filters": {
                "type": "object",
                "additionalProperties": {"type": "string", "maxLength": 20},
                "maxProperties": 2,
            },
            "box": {
                "type": "array",
                "prefixItems": [{"type": "number", "minimum": -90, "maximum": 90}, {"type": "number", "maximum": 180}],
                "items": False,
                "minItems": 2,
            },
        },
        "required": ["query"],
    },
    "move": {
        "type": "object",
        "properties": {
            "action": {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "walk"}, "steps": {"type": "integer", "minimum": 1}},
                        "required": ["kind", "steps"],
                    },
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "turn"}, "side": {"enum": ["left", "right"]}},
                        "required": ["kind", "side"],
                    },
                ]
            }
        },
        "required": ["action"],
    },
    "temperature": {
        "type": "object",
        "properties": {
            "degrees": {"type": "number", "minimum": -40.5, "maximum": 60},
            "zone": {"allOf": [{"$ref": "#/$defs/Zone"}], "description": "Where"},
            "hold": {"type": "boolean", "default": False},
        },
        "required": ["degrees", "zone"],
        "$defs": {"Zone": {"type": "string", "enum": ["ground floor", "first floor", "cellar"]}},
    },
    "nothing": {"type": "object", "properties": {}, "additionalProperties": False},
    "anything": {"type": "object", "properties": {"value": {}}, "required": ["value"]},
}
