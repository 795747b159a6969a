"""Which bytecodes a program executed, and which ways through its methods it took (docs/statements.md)."""
