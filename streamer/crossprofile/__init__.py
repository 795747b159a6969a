"""How long a program would take on another platform, estimated from its contexts (docs/cost-tables.md)."""
