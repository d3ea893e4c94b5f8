"""What stands before every request: keys, limits, deadlines, ids, and the books about them."""
