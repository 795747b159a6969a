"""How exact the control flow in bytecodes is, against a JVM that says itself what it runs."""
