"""The APIs: one module each, with its messages as msgspec Structs, from which the OpenAPI document is made, too."""
