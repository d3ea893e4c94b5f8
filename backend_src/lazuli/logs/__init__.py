"""What models say in the log: one line an event. Nothing of what requests hold, unless that is asked for."""
