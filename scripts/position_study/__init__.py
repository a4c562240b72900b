"""The measurements and figures of docs/positions.md; ``scripts/plot_positions.py`` runs them."""
