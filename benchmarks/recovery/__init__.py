"""How much of the control flow that is lost `stages.recover` brings back, and how much of that is true."""
