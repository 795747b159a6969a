"""How exact the control flow in bytecodes is, against a JVM that tells each bytecode it runs."""
