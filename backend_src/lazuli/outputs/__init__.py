"""What a pooled vector becomes on its way into an answer: cut, scaled, encoded in fewer bytes."""
