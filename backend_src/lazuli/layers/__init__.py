"""The layers that models are made of: plain functions and small classes over packed tokens."""
