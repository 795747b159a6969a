"""The agent's cost for an untraced JVM."""
