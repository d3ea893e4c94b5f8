"""The texts that are sent: real ones of files, made-up ones of exact lengths, and those that are hard to tokenise."""
