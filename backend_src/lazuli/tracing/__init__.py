"""What becomes of a request: told to its caller's trace (OpenTelemetry), and to the log. Triton is not known here."""
