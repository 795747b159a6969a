"""`streamer flow`: the bytecodes of a recording, by thread, by method and by path (docs/statements.md)."""
