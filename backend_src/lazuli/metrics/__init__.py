"""What the server says about its work, as counters and gauges. Triton is not known here: `lazuli.triton.metrics` is."""
