"""Weights as small integers: grids, quantisers, and what they calibrate with."""
