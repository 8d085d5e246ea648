"""How tasks speak to endpoints."""
